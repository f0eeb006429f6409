package train_test

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cage-qat/cage/host/deploy/trained"
	"github.com/cage-qat/cage/host/model/generate"
	"github.com/cage-qat/cage/host/testing/testrun"
	"github.com/cage-qat/cage/host/train"
	"github.com/cage-qat/cage/host/train/config"
	"github.com/cage-qat/cage/host/train/metrics"
	"github.com/cage-qat/cage/host/train/rundir"
	"github.com/cage-qat/cage/internal/testing/golden"
	"github.com/cage-qat/cage/internal/testing/testlevel"
)

const quadraticText = `
[model]
kind = "quadratic"
dimension = 16
condition = 100.0
[train]
steps = 60
eval_every = 16
log_every = 3
trajectory_every = 4
[schedule]
rate = 3e-2
[method]
silence = 0.4
[quantizer.weights]
plugin = "quest"
[optimizer]
plugin = "adamw"
`

const toyText = `
[model]
kind = "toy"
[train]
steps = 150
eval_every = 0
trajectory_every = 1
[schedule]
kind = "constant"
rate = 0.1
[method]
gradient = "full"
silence = 0.0
ramp = "constant"
pareto_every = 150
[quantizer.weights]
plugin = "grid"
rounding = "floor"
[optimizer]
plugin = "sgd"
momentum = 0.0
`

// problem returns a configuration with its own run directory.
func problem(t testing.TB, text string, overrides ...string) *config.Config {
	t.Helper()
	out := fmt.Sprintf("train.out=%q", filepath.Join(t.TempDir(), "run"))
	return testrun.Parse(t, text, append([]string{out}, overrides...)...)
}

// iterates returns the points that a run has recorded.
func iterates(t *testing.T, dir string) []metrics.Point {
	t.Helper()
	points, err := metrics.Read[metrics.Point](rundir.At(dir).Trajectory())
	if err != nil {
		t.Fatal(err)
	}
	return points
}

// TestToyParetoPoints checks that for f(x) = ½(x − ½)² and Q = floor, the iteration of the CAGE
// paper's Eq. 3 converges, from both ends of each cell that has one, to the cell's λ-Pareto point.
// It uses both forms and the real plugins. The tolerance is a few units in the last place of
// float32 of the largest point, 3.1.
func TestToyParetoPoints(t *testing.T) {
	testlevel.Long(t, "trains several runs")
	roots := 0
	for _, table := range golden.Load(t, "../cage/testdata/cage.json").Top(t).List("toy_pareto") {
		lambda := table.Float("lam")
		for _, root := range table.List("roots") {
			cell, want := root.Float("cell"), root.Float("x")
			roots++
			for form, start := range map[string]float64{"decoupled": cell + 0.02, "coupled": cell + 0.98} {
				cfg := problem(t, toyText, fmt.Sprintf("model.start=%v", start),
					fmt.Sprintf("method.lambda=%v", lambda),
					fmt.Sprintf("method.form=%q", form))
				s := testrun.Train(t, cfg, train.Options{})
				points := iterates(t, cfg.Train.Out)
				last := points[len(points)-1]
				if d := math.Abs(float64(last.X[0]) - want); last.Step != 150 || d > 2e-6 {
					t.Errorf("%s, λ = %v, from %v: %v, want %v", form, lambda, start, last.X[0], want)
				}
				quantized, away := math.Floor(float64(last.X[0]))-0.5, math.Abs(want-0.5)
				if math.Abs(float64(*s.ValLoss)-quantized*quantized/2) > 1e-6 ||
					math.Abs(float64(*s.Distance)-away) > 2e-6 {
					t.Errorf("%s, λ = %v: loss %v, distance %v", form, lambda, *s.ValLoss, *s.Distance)
				}
				list := records(t, cfg.Train.Out)
				if p := list[len(list)-2]; p.Pareto == nil || math.Abs(float64(*p.Pareto)) > 1e-5 ||
					p.ParetoSTE != nil {
					t.Errorf("%s, λ = %v: in the end ‖P_λ‖ is %v and that of the quantized gradient %v, want 0 "+
						"and none", form, lambda, p.Pareto, p.ParetoSTE)
				}
			}
		}
	}
	if roots != 11 {
		t.Errorf("the file has %d points, want 11", roots)
	}
}

// TestToyTrajectory compares each iterate with the iteration in float64, for gradients at x and at
// Q(x), where plain STE would leave the point forever.
func TestToyTrajectory(t *testing.T) {
	for _, gradient := range []string{"full", "quantized"} {
		cfg := problem(t, toyText, "model.start=1.7", "method.lambda=1.0", "train.steps=30",
			fmt.Sprintf("method.gradient=%q", gradient))
		testrun.Train(t, cfg, train.Options{})
		x := 1.7
		points := iterates(t, cfg.Train.Out)
		for i, p := range points {
			if d := math.Abs(float64(p.X[0]) - x); p.Step != i || d > 1e-5 {
				t.Fatalf("%s: point %d of step %d is %v, want %v", gradient, i, p.Step, p.X[0], x)
			}
			at := x
			if gradient == "quantized" {
				at = math.Floor(x)
			}
			x -= 0.1 * (at - 0.5 + 1*(x-math.Floor(x)))
		}
		if len(points) != 31 {
			t.Errorf("%s: %d points, want 31", gradient, len(points))
		}
	}
}

// TestProblemOutputs checks which numbers and points a problem records.
func TestProblemOutputs(t *testing.T) {
	cfg := problem(t, quadraticText)
	s := testrun.Train(t, cfg, train.Options{})
	if !s.Completed || s.Tokens != 0 || s.TokensPerSecond != nil || s.ValPPL != nil ||
		s.Distance == nil || s.Parameters != 16 {
		t.Errorf("the summary is %+v", s)
	}
	evaluated := 0
	for _, r := range records(t, cfg.Train.Out) {
		if r.Distance == nil || r.ValPPL != nil || r.TokensPerSecond != nil {
			t.Errorf("step %d: distance %v, perplexity %v", r.Step, r.Distance, r.ValPPL)
		}
		if r.ValLoss != nil {
			evaluated++
		}
	}
	var steps []string
	for _, p := range iterates(t, cfg.Train.Out) {
		steps = append(steps, fmt.Sprint(p.Step))
	}
	if got := strings.Join(steps, " "); evaluated != 4 ||
		got != "0 4 8 12 16 20 24 28 32 36 40 44 48 52 56 60" {
		t.Errorf("%d evaluations, points at %s", evaluated, got)
	}
	none := problem(t, quadraticText, "train.trajectory_every=0", `quantizer.weights.plugin="none"`)
	s = testrun.Train(t, none, train.Options{})
	if d := float64(*s.Distance); math.Abs(float64(*s.ValLoss)-d*d/2) > 1e-6*d {
		t.Errorf("without a quantizer the loss is %v, the distance %v", *s.ValLoss, d)
	}
	if _, err := os.Stat(rundir.At(none.Train.Out).Trajectory().Name); !os.IsNotExist(err) {
		t.Errorf("there is a trajectory that was not asked for (%v)", err)
	}
}

// TestProblemOpens checks that a trained problem can be evaluated, with the loss in the summary,
// but neither generates text nor is evaluated on data.
func TestProblemOpens(t *testing.T) {
	cfg := problem(t, quadraticText)
	s := testrun.Train(t, cfg, train.Options{})
	opened := opened(t, cfg.Train.Out, trained.Options{})
	loss, tokens, err := opened.Evaluate(t.Context(), 0)
	if err != nil || tokens != 0 || loss != float64(*s.ValLoss) {
		t.Errorf("the loss is %v of %d tokens (%v), want %v of none", loss, tokens, err, *s.ValLoss)
	}
	if _, err := opened.Generate(t.Context(), "", generate.Options{}, nil); err == nil ||
		!strings.Contains(err.Error(), `"quadratic" does not predict text`) {
		t.Errorf("Generate: %v", err)
	}
	if _, err := trained.Open(t.Context(), cfg.Train.Out,
		trained.Options{Finder: testrun.Finder(t), Data: "file"}); err == nil ||
		!strings.Contains(err.Error(), "not evaluated on data") {
		t.Errorf("with data: %v", err)
	}
}

// TestProblemResumes checks that a run in parts ends like one without a stop, including noise,
// records and points.
func TestProblemResumes(t *testing.T) {
	whole := problem(t, quadraticText, "train.checkpoint_every=10")
	testrun.Train(t, whole, train.Options{})
	parts := inParts(t, whole, 7, 24, 25)
	sameTrajectory(t, whole, parts)
	other := testrun.Elsewhere(t, whole, "seed=1")
	testrun.Train(t, other, train.Options{})
	if a, b := iterates(t, whole.Train.Out), iterates(t, other.Train.Out); a[0].X[0] == b[0].X[0] {
		t.Error("another seed starts at the same point")
	}
}

func sameTrajectory(t *testing.T, a, b *config.Config) {
	t.Helper()
	if diff := cmp.Diff(iterates(t, a.Train.Out), iterates(t, b.Train.Out)); diff != "" {
		t.Errorf("the trajectories differ:\n%s", diff)
	}
}

// TestProblemKilled checks that the points survive SIGKILL like the records.
func TestProblemKilled(t *testing.T) {
	testlevel.Long(t, "starts and kills processes")
	whole := problem(t, quadraticText, "train.steps=4000", "train.checkpoint_every=400",
		"train.keep=1", "train.trajectory_every=3")
	killed := testrun.Elsewhere(t, whole)
	killAndCompare(t, whole, killed)
	sameTrajectory(t, whole, killed)
}

// TestOLMo2Trains checks that OLMo 2 trains, is evaluated and continues a prompt with the same
// plugins and data.
func TestOLMo2Trains(t *testing.T) {
	cfg := testrun.Config(t, `model.kind="olmo2"`, "model.kv_heads=1", "model.rope_factor=8.0",
		"train.steps=30")
	s := testrun.Train(t, cfg, train.Options{})
	list := losses(t, cfg.Train.Out)
	if !s.Completed || s.ValPPL == nil || !(list[len(list)-1] < list[0]-0.5) {
		t.Errorf("losses from %v to %v, summary %+v", list[0], list[len(list)-1], s)
	}
	opened := opened(t, cfg.Train.Out, trained.Options{Generate: 1})
	if text, err := opened.Generate(t.Context(), "the", generate.Options{Tokens: 5},
		nil); err != nil || text == "" {
		t.Errorf("generated %q, %v", text, err)
	}
}
