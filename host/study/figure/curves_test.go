package figure_test

import (
	"bytes"
	"fmt"
	"image/png"
	"math"
	"regexp"
	"strings"
	"testing"

	"github.com/cage-qat/cage/host/study/figure"
	"github.com/cage-qat/cage/host/train/metrics"
)

// leftOfFigure finds paths that begin where x is negative.
var leftOfFigure = regexp.MustCompile(`<path d="M-[^"]*"`)

// TestValidationAboveTraining: the axis reaches to a validation loss that lies above all of the training after its beginning.
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

// TestManyRuns: names for which there is no room beside the curves stand above them, all of them within the figure, and none
// makes a file that is not well-formed.
func TestManyRuns(t *testing.T) {
	records := simulate(100, 1.6, 0)
	few := len(labels(t, render(t, figure.SVG, []figure.Run{{"a", records}, {"b", records}}, figure.Options{})))
	var many []figure.Run
	for i := range 24 {
		many = append(many, figure.Run{Name: fmt.Sprintf("run number %d", i), Records: records})
	}
	long := []figure.Run{{strings.Repeat("long ", 15) + "a", records}, {strings.Repeat("long ", 40) + "b", records}, {"\x00\x1b<&c", records}}
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

// moving makes the records of a run with diagnostics at every tenth step: codes settle
// and residuals become coherent, from the 32nd sample on.
func moving(steps int, lambda float64) []metrics.Record {
	records := simulate(steps, 2, lambda)
	for i := range records {
		r := &records[i]
		if r.Step%10 != 0 || r.Step == 10 {
			continue
		}
		t := float64(r.Step) / float64(steps)
		r.FlipRate = metrics.Some(0.4 * math.Exp(-3*t))
		r.DwellMean, r.DwellP90, r.DwellMax = metrics.Some(10*math.Exp(3*t)), metrics.Some(20*math.Exp(3*t)), metrics.Some(float64(r.Step))
		if r.Step >= 320 {
			r.Coherence, r.CoherenceVector = metrics.Some(0.2+0.5*t*t), metrics.Some(0.2+0.6*t*t)
		}
	}
	return records
}

func TestMovement(t *testing.T) {
	const flips, coherence, dwell = "codes changed (%)", "coherence", "dwell time (steps)"
	still := []metrics.Record{{Step: 10}, {Step: 20, FlipRate: metrics.Some(0), DwellMean: metrics.Some(20), DwellP90: metrics.Some(20), DwellMax: metrics.Some(20)}}
	odd := moving(400, 1)
	*odd[99].FlipRate, *odd[109].DwellMean, *odd[349].Coherence = metrics.Number(math.NaN()), 0, metrics.Number(math.Inf(1))
	tests := map[string]struct {
		runs   []figure.Run
		window int
		o      figure.Options
		want   []string
		not    []string
	}{
		"one run": {[]figure.Run{{"run", moving(1000, 2)}}, 32, figure.Options{Title: "title"},
			[]string{"title", flips, coherence, dwell, "vector", "mean over coordinates", "independent residuals", "mean", "ninth decile", "largest", "λ", "step"}, []string{"run"}},
		"several, one of them without": {[]figure.Run{{"CAGE", moving(1000, 2)}, {"QuEST", moving(1000, 0)}, {"nothing", simulate(1000, 2, 1)}}, 0, figure.Options{},
			[]string{flips, coherence, dwell, "CAGE", "QuEST", "λ"}, []string{"independent residuals", "nothing"}},
		"before the window is full": {[]figure.Run{{"run", moving(200, 0)}}, 32, figure.Options{}, []string{flips, dwell}, []string{coherence, "λ"}},
		"nothing moves":             {[]figure.Run{{"run", still}}, 32, figure.Options{}, []string{flips, dwell}, []string{coherence}},
		"not finite":                {[]figure.Run{{"run", odd}}, 32, figure.Options{}, []string{flips, coherence, dwell}, nil},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			picture := &figure.Movement{Runs: test.runs, Window: test.window}
			svg := drawn(t, figure.SVG, picture, test.o)
			got := labels(t, svg)
			for _, label := range test.want {
				if got[label] != 1 {
					t.Errorf("%q appears %d times among %v", label, got[label], got)
				}
			}
			for _, label := range test.not {
				if got[label] != 0 {
					t.Errorf("%q appears", label)
				}
			}
			if !bytes.Equal(svg, drawn(t, figure.SVG, picture, test.o)) {
				t.Error("the same runs give two figures")
			}
			if _, err := png.Decode(bytes.NewReader(drawn(t, figure.PNG, picture, test.o))); err != nil {
				t.Error(err)
			}
		})
	}
}
