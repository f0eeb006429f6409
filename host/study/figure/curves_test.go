package figure_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/cage-qat/cage/host/study/figure"
	"github.com/cage-qat/cage/host/train/metrics"
)

// leftOfFigure matches paths that begin at a negative x.
var leftOfFigure = regexp.MustCompile(`<path d="M-[^"]*"`)

// TestValidationAboveTraining checks that the axis includes a validation loss that lies above all
// training losses except the first ones, which are cut off.
func TestValidationAboveTraining(t *testing.T) {
	var records []metrics.Record
	for step := 1; step <= 300; step++ {
		r := metrics.Record{Step: step, Tokens: 8, Loss: metrics.Number(1.1 - 0.0003*float64(step))}
		if step == 1 {
			r.Loss = 4
		}
		if step%50 == 0 {
			r.ValLoss = metrics.Some(1.5 + 0.0003*float64(step))
		}
		records = append(records, r)
	}
	for _, runs := range [][]figure.Run{{{"run", records}}, {{"a", records}, {"b", records}}} {
		got := labels(t, render(t, figure.SVG, runs, figure.Options{}))
		if got["1.6"] == 0 || got["2.0"]+got["4.0"] > 0 {
			t.Errorf("%d runs: the figure says %v", len(runs), got)
		}
	}
}

// TestManyRuns checks that all names of many runs, and very long names, are drawn within the
// figure, and that no name makes the file malformed.
func TestManyRuns(t *testing.T) {
	records := simulate(100, 1.6, 0)
	few := len(labels(t, render(t, figure.SVG, []figure.Run{{"a", records}, {"b", records}},
		figure.Options{})))
	var many []figure.Run
	for i := range 24 {
		many = append(many, figure.Run{Name: fmt.Sprintf("run number %d", i), Records: records})
	}
	long := []figure.Run{{strings.Repeat("long ", 15) + "a", records},
		{strings.Repeat("long ", 40) + "b", records}, {"\x00\x1b<&c", records}}
	for name, runs := range map[string][]figure.Run{"many": many, "long": long} {
		p := &figure.Curves{Runs: runs}
		svg := drawn(t, figure.SVG, p, figure.Options{Title: "title"})
		if got := labels(t, svg); len(got) < few+len(runs)-2 {
			t.Errorf("%s: the figure says only %v", name, got)
		}
		for _, m := range leftOfFigure.FindAllSubmatch(svg, -1) {
			t.Errorf("%s: a line begins left of the figure: %s", name, m[0])
		}
		drawn(t, figure.PNG, p, figure.Options{Height: 1}) // parts without space are omitted
	}
}
