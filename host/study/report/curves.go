package report

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/cage-qat/cage/host/study"
	"github.com/cage-qat/cage/host/study/figure"
	"github.com/cage-qat/cage/host/study/stat"
	"github.com/cage-qat/cage/host/train/metrics"
	"github.com/cage-qat/cage/host/train/rundir"
	"github.com/cage-qat/cage/internal/vfs"
)

// curves has a metric of the records over the steps, for each series the mean over its
// replicates.
func curves(s *study.Study, f study.Figure, results []study.Result) (picture, error) {
	g, err := grouping{s, [][]string{f.Series}, f.Over, f.Where}.group(results)
	if err != nil {
		return picture{}, err
	}
	out := &figure.Chart{X: figure.Axis{Label: "step", Log: f.LogX}, Y: figure.Axis{Label: metrics.Label(f.Metric), Log: f.LogY}}
	var n counts
	for _, series := range g.labels[0] {
		var runs []curve
		for _, r := range g.at(series) {
			if !r.result.Trained() && !r.result.Diverged || r.result.Cell.Quantize != nil { // what is quantized after training has no steps
				continue
			}
			c, err := readCurve(rundir.At(r.result.Cell.Run).Metrics(), f.Metric)
			if err != nil {
				return picture{}, &damaged{r.result.Cell.ID, err}
			}
			if len(c.steps) > 0 {
				runs = append(runs, c)
			}
		}
		n.add(len(runs))
		line := figure.Series{Name: seriesName(f.Series, series), Line: figure.Varied, Band: true, Points: average(runs)}
		line.Marks = len(line.Points) <= fewPoints
		out.Series = append(out.Series, line)
	}
	return drawn(out, n, "Mean ± standard deviation", f), nil
}

// fewPoints is how many points of a curve are still told apart when each has a mark.
const fewPoints = 20

// curve is a metric of a run, in the order of the steps.
type curve struct {
	steps  []int
	values map[int]float64
}

// readCurve reads a field of metrics.jsonl by its JSON name, whatever fields there are.
func readCurve(path vfs.Path, metric string) (curve, error) {
	data, err := path.ReadFile()
	if err != nil {
		return curve{}, err
	}
	c := curve{values: map[int]float64{}}
	for number := 1; ; number++ {
		text, after, complete := bytes.Cut(data, []byte{'\n'})
		if !complete {
			return c, nil // a last line without its end is not whole
		}
		data = after
		var record map[string]json.RawMessage
		if err := json.Unmarshal(text, &record); err != nil {
			return curve{}, fmt.Errorf("%s: line %d: %w", path, number, err)
		}
		raw, ok := record[metric]
		if !ok {
			continue
		}
		var step int
		var value metrics.Number
		if err := json.Unmarshal(record["step"], &step); err != nil {
			return curve{}, fmt.Errorf("%s: line %d: step: %w", path, number, err)
		}
		if err := value.UnmarshalJSON(raw); err != nil {
			return curve{}, fmt.Errorf("%s: line %d: %s: %w", path, number, metric, err)
		}
		if _, again := c.values[step]; !again {
			c.steps = append(c.steps, step)
		}
		c.values[step] = float64(value)
	}
}

// average is the mean over runs at the steps that all of them have, ± the standard
// deviation. A mean over fewer would jump where a run ends or skips a record.
func average(runs []curve) []figure.Point {
	if len(runs) == 0 {
		return nil
	}
	var out []figure.Point
	for _, step := range runs[0].steps {
		var x []float64
		for _, r := range runs {
			if v, ok := r.values[step]; ok {
				x = append(x, v)
			}
		}
		if len(x) == len(runs) {
			d := stat.Describe(x)
			out = append(out, figure.Point{X: float64(step), Y: d.Mean, Minus: known(d.SD), Plus: known(d.SD)})
		}
	}
	return out
}
