package bench

import (
	"errors"
	"strings"
	"testing"

	"github.com/cage-qat/cage/host/testing/testrun"
	"github.com/cage-qat/cage/host/train/build"
	"github.com/cage-qat/cage/host/train/config"
	"github.com/cage-qat/cage/internal/testing/testlevel"
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

// TestRun checks that the step is measured without and with the correction, which changes the loss.
func TestRun(t *testing.T) {
	r, err := Run(t.Context(), parse(t), Options{Rounds: 4, Finder: testrun.Finder(t)})
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Steps) != 2 || r.Steps[0].Name != Plain || r.Steps[1].Name != WithCAGE {
		t.Fatalf("measured %+v", r.Steps)
	}
	for _, s := range r.Steps {
		if s.Seconds <= 0 || s.CPU <= 0 || len(s.All) != 4 {
			t.Errorf("%s: %+v", s.Name, s)
		}
	}
	if r.Steps[0].Loss == r.Steps[1].Loss {
		t.Error("the correction changes nothing")
	}
	if r.Tokens != 32 || r.FLOPs <= 0 || r.Seconds != r.Steps[1].Seconds {
		t.Errorf("report: %+v", r)
	}
}

// TestRunAlone checks that only the configured step is measured, with the correction if it is on.
func TestRunAlone(t *testing.T) {
	testlevel.Long(t, "compiles many steps")
	for _, tt := range []struct {
		set  []string
		want string
	}{
		{nil, WithCAGE},
		{[]string{`method.form="off"`}, Plain},
		{[]string{`quantizer.plugin="none"`}, Plain},
		{[]string{`method.name="lotion"`, `quantizer={weights={plugin="quest"}}`}, Plain},
	} {
		o := Options{Rounds: 1, ConfiguredOnly: true, Finder: testrun.Finder(t)}
		r, err := Run(t.Context(), parse(t, tt.set...), o)
		if err != nil || len(r.Steps) != 1 || r.Steps[0].Name != tt.want {
			t.Errorf("%v: %+v, %v; want %s", tt.set, r, err, tt.want)
		}
	}
}

func TestRunRefuses(t *testing.T) {
	tests := map[string]struct {
		overrides []string
		want      string
	}{
		"no vocabulary":    {[]string{"model.vocab=0"}, "model.vocab"},
		"unknown plugin":   {[]string{`quantizer.plugin="quext"`}, "quest"},
		"wrong parameters": {[]string{"quantizer.bits=99"}, "1 to 8"},
	}
	for name, tt := range tests {
		_, err := Run(t.Context(), parse(t, tt.overrides...),
			Options{Rounds: 1, Finder: testrun.Finder(t)})
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got %v, want an error with %q", name, err, tt.want)
		}
	}
}

func TestRunRefusesProblems(t *testing.T) {
	cfg, err := config.Parse("toy.toml",
		[]byte("model = {kind = \"toy\"}\ntrain = {steps = 1}\nschedule = {rate = 1}\n"), nil)
	if err != nil {
		t.Fatal(err)
	}
	const want = "toy.toml:1: model.kind: a benchmark needs a language model"
	if _, err := Run(t.Context(), cfg, Options{Rounds: 1}); err == nil ||
		!strings.Contains(err.Error(), want) {
		t.Errorf("got %v", err)
	}
}

// TestWithTeacher measures a step with a teacher, whose parameters are random.
func TestWithTeacher(t *testing.T) {
	testlevel.Long(t, "compiles many steps")
	cfg := parse(t, "model.vocab=328",
		`train.distillation={teacher="../../model/huggingface/testdata/llama32"}`)
	r, err := Run(t.Context(), cfg, Options{Rounds: 2, Finder: testrun.Finder(t)})
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Steps) == 0 {
		t.Error("no step was measured")
	}
	for _, s := range r.Steps {
		if !(s.Loss > 0 && s.Loss < 1) {
			t.Errorf("%s: the loss is %v", s.Name, s.Loss)
		}
	}
}

// TestRunResolvesRecompute checks that "auto" is resolved as in a training: if nothing fits, blocks
// are recomputed, and the error does not propose it.
func TestRunResolvesRecompute(t *testing.T) {
	cfg := parse(t, "model.context=1048576", "train.batch=16", `train.recompute="auto"`)
	_, err := Run(t.Context(), cfg, Options{Rounds: 1, Finder: testrun.Finder(t)})
	if _, ok := errors.AsType[*build.MemoryError](err); !ok ||
		strings.Contains(err.Error(), "train.recompute") {
		t.Errorf("got %v, want an error of the memory that does not name train.recompute", err)
	}
}
