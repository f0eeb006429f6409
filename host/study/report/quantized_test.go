package report_test

import (
	"testing"

	"github.com/cage-qat/cage/host/study"
	"github.com/cage-qat/cage/host/study/figure"
	"github.com/cage-qat/cage/host/study/report"
)

const afterwards = `
[base]
model = {layers = 1, width = 16, heads = 2, context = 8}
data = {train = "t.tokens", validation = "v.tokens"}
train = {steps = 1, batch = 1}
schedule = {rate = 1e-3}
quantizer = {plugin = "absmax"}
[study]
out = "%s"
[[study.axes]]
name = "method"
values = [{label = "full", set = {quantizer = {plugin = "none"}}}, {label = "RTN", quantize = {method = "rtn", windows = 0}}]
[[study.figures]]
kind = "curves"
metric = "loss"
series = ["method"]
`

// TestCurvesOfQuantized: what is quantized after training has no curve, and stays in the tables.
func TestCurvesOfQuantized(t *testing.T) {
	s := parse(t, afterwards, t.TempDir())
	results := make([]study.Result, len(s.Cells))
	for i, c := range s.Cells {
		results[i] = study.Result{Cell: c, State: study.Done, Summary: map[string]float64{"val_loss": 2}}
	}
	write(t, s.Cells[0].Run, "metrics.jsonl", "{\"step\":1,\"loss\":2.5}\n")
	r, err := report.New(s, results)
	if err != nil {
		t.Fatal(err)
	}
	if got := r.Results(); len(got.Damages) > 0 || r.Tables[0].Entries[0][0].N != 1 || r.Tables[0].Entries[1][0].N != 1 {
		t.Errorf("left out: %v; entries %+v", got.Damages, r.Tables[0].Entries)
	}
	if points := r.Figures[0].Picture.(*figure.Chart).Series[0].Points; len(points) != 1 || points[0].Y != 2.5 {
		t.Errorf("the curve of the trained cell is %v", points)
	}
}
