package bench

import (
	"math"
	"strings"
	"testing"

	"github.com/cage-qat/cage/host/internal/testrun"
	"github.com/cage-qat/cage/host/train/config"
	"github.com/cage-qat/cage/host/train/step"
	"github.com/cage-qat/cage/internal/effort"
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
	effort.Long(t, "compiles many steps")
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
	effort.Long(t, "compiles many steps")
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
