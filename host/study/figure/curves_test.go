package figure_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/cage-qat/cage/host/study/figure"
	"github.com/cage-qat/cage/host/train/metrics"
)

// leftOfFigure finds paths that begin where x is negative.
var leftOfFigure = regexp.MustCompile(`<path d="M-[^"]*"`)

// TestValidationAboveTraining: the axis reaches to a validation loss that lies above all of the
// training after its beginning.
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

// TestManyRuns: names for which there is no room beside the curves stand above them, all of them
// within the figure, and none makes a file that is not well-formed.
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
		drawn(t, figure.PNG, p, figure.Options{Height: 1}) // what has no room is left out
	}
}
