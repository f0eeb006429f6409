package bench

import (
	"math"
	"strconv"
	"strings"
	"testing"

	"github.com/cage-qat/cage/host/model/architecture"
	"github.com/cage-qat/cage/host/study/bench/opprofile"
	"github.com/cage-qat/cage/host/train/config"
	"github.com/cage-qat/cage/host/train/step"
	"github.com/cage-qat/cage/internal/testing/testlevel"
	"github.com/cage-qat/cage/internal/testing/testrun"
)

const tiny = `
[model]
layers = 1
width = 32
heads = 2
hidden = 64
context = 16
vocab = 64
[data]
train = "random"
validation = "random"
[train]
steps = 100
batch = 2
[schedule]
rate = 1e-3
[optimizer]
plugin = "adamw"
[quantizer]
plugin = "quest"
`

func parse(t *testing.T, overrides ...string) *config.Config {
	t.Helper()
	cfg, err := config.Parse("bench.toml", []byte(tiny), overrides)
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

// TestDirectComputesTheSame: the step written in the host is a fair comparison only
// while its losses are those of the plugins' programs.
func TestDirectComputesTheSame(t *testing.T) {
	r, err := Run(t.Context(), parse(t), Options{Rounds: 4, Direct: true, Finder: testrun.Finder(t)})
	if err != nil {
		t.Fatal(err)
	}
	byName := map[string]Timing{}
	for _, s := range r.Steps {
		byName[s.Name] = s
		if s.Seconds <= 0 || s.CPU <= 0 || len(s.All) != 4 {
			t.Errorf("%s: %+v", s.Name, s)
		}
	}
	if len(r.Steps) != 3 {
		t.Fatalf("%d subjects, want 3", len(r.Steps))
	}
	plain, direct, corrected := byName[Plain].Loss, byName[Direct].Loss, byName[WithCAGE].Loss
	if math.Abs(direct-plain) > 1e-6*plain {
		t.Errorf("after 6 steps the loss is %v with plugins, %v written in the host", plain, direct)
	}
	if corrected == plain {
		t.Error("the correction changes nothing")
	}
	if r.PluginStart <= 0 || r.Tokens != 32 || r.FLOPs <= 0 {
		t.Errorf("report: %+v", r)
	}
}

// TestNoUpdate: without the update's arithmetic nothing is learned, however many steps.
func TestNoUpdate(t *testing.T) {
	testlevel.Long(t, "compiles many steps")
	var losses []float64
	for _, rounds := range []int{1, 3} {
		r, err := Run(t.Context(), parse(t), Options{Rounds: rounds, NoUpdate: true, Finder: testrun.Finder(t)})
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range r.Steps {
			if s.Name == NoUpdate {
				losses = append(losses, s.Loss)
			}
		}
	}
	if len(losses) != 2 || losses[0] != losses[1] || losses[0] <= 0 {
		t.Errorf("losses %v; want two that are equal", losses)
	}
	_, err := Run(t.Context(), parse(t), Options{Rounds: 1, NoUpdate: true, Dispatch: step.Single, Finder: testrun.Finder(t)})
	if err == nil || !strings.Contains(err.Error(), "use the dispatch chain") {
		t.Errorf("one executable: got %v; want an error", err)
	}
}

func TestRunRefuses(t *testing.T) {
	tests := map[string]struct {
		overrides []string
		direct    bool
		want      string
	}{
		"no vocabulary":    {[]string{"model.vocab=0"}, false, "model.vocab"},
		"no direct SGD":    {[]string{`optimizer.plugin="sgd"`}, true, "quest and adamw only"},
		"unknown plugin":   {[]string{`quantizer.plugin="quext"`}, false, "quest"},
		"wrong parameters": {[]string{"quantizer.bits=99"}, false, "1 to 8"},
	}
	for name, tt := range tests {
		_, err := Run(t.Context(), parse(t, tt.overrides...), Options{Rounds: 1, Direct: tt.direct, Finder: testrun.Finder(t)})
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got %v, want an error with %q", name, err, tt.want)
		}
	}
}

func TestRunRefusesProblems(t *testing.T) {
	cfg, err := config.Parse("toy.toml", []byte("model = {kind = \"toy\"}\ntrain = {steps = 1}\nschedule = {rate = 1}\n"), nil)
	if err != nil {
		t.Fatal(err)
	}
	const want = "toy.toml:1: model.kind: a benchmark is of a language model"
	if _, err := Run(t.Context(), cfg, Options{Rounds: 1}); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v", err)
	}
	if _, err := ProfileStep(t.Context(), cfg, Options{Rounds: 1}); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("a profile: got %v", err)
	}
}

// TestWithTeacher: a step with a teacher is measured beside the same without it.
func TestWithTeacher(t *testing.T) {
	testlevel.Long(t, "compiles many steps")
	cfg := parse(t, "model.vocab=328", `train.distillation={teacher="../../model/huggingface/testdata/llama32"}`)
	r, err := Run(t.Context(), cfg, Options{Rounds: 2, Finder: testrun.Finder(t)})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, s := range r.Steps {
		names = append(names, s.Name)
		taught := s.Name != Untaught
		if taught != (s.Loss > 0 && s.Loss < 1) {
			t.Errorf("%s: the loss is %v", s.Name, s.Loss)
		}
	}
	if got := strings.Join(names, ", "); got != "plugins, plugins + CAGE, no teacher" {
		t.Errorf("measured %s", got)
	}
	if _, err := ProfileStep(t.Context(), cfg, Options{Rounds: 1, Finder: testrun.Finder(t)}); err != nil {
		t.Errorf("profile: %v", err)
	}
}

// TestCounts: the products of a step without quantizers are those that the model's floating-point operations stand for, up to
// gains, which are multiplied otherwise. In float32 attention computes a few projections twice, so that nothing is
// transposed. In bfloat16 its own products are counted apart, without most of the half that it masks.
func TestCounts(t *testing.T) {
	for _, precision := range []string{"float32", "bfloat16"} {
		t.Run(precision, func(t *testing.T) {
			p, dev, err := openStep(t.Context(), parse(t, `quantizer.plugin="none"`, "device.precision="+strconv.Quote(precision)), Options{Finder: testrun.Finder(t)})
			if err != nil {
				t.Fatal(err)
			}
			defer dev.Close()
			c, err := step.Compile(dev, p.plan)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			state, err := c.NewState(0, tokens(c, p.config.Model.Vocab))
			if err != nil {
				t.Fatal(err)
			}
			defer state.Close()
			var products *counts
			for round := range 2 { // the first step also tries whether attention is right
				products = newCounts(dev)
				stop := products.start(dev)
				if _, err := timeStep(Subject{Compiled: c}, state, p.config.Model.Vocab, round); err != nil {
					t.Fatal(err)
				}
				if err := stop(); err != nil {
					t.Fatal(err)
				}
			}
			sum := map[string]float64{}
			for kind, byInstruction := range products.byKind {
				for _, n := range byInstruction {
					sum[kind] += n
				}
			}
			m, tokens := p.config.Model, float64(c.Batch()*p.plan.Context)
			gains := architecture.CountParams(p.model.Params(), func(p architecture.Param) bool { return len(p.Dims) == 1 })
			all := p.model.StepFLOPs(c.Batch(), p.plan.Context) - 6*float64(gains)*tokens
			attention := 12 * float64(m.Layers*m.Width*p.plan.Context) * tokens
			switch precision {
			case "float32":
				if got := sum[opprofile.Products]; len(sum) != 1 || got < all || got > 1.1*all {
					t.Errorf("counted %v, want a little more than %v", sum, all)
				}
			case "bfloat16":
				if got := sum[opprofile.Products]; got != all-attention {
					t.Errorf("counted %v, want %v beside attention", sum, all-attention)
				}
				if got := sum[opprofile.Attention]; got < attention/2 || got > 1.5*attention { // it computes scores twice
					t.Errorf("counted %v, want about %v for attention", sum, attention)
				}
			}
		})
	}
}
