package train_test

import (
	"strings"
	"testing"

	"github.com/hashicorp/go-hclog"

	"github.com/cage-qat/cage/host/internal/testrun"
	"github.com/cage-qat/cage/host/train"
	"github.com/cage-qat/cage/host/train/config"
)

// warnings trains and returns what the run warned of.
func warnings(t *testing.T, cfg *config.Config) string {
	t.Helper()
	var log strings.Builder
	testrun.Train(t, cfg, train.Options{Logger: hclog.New(&hclog.LoggerOptions{Output: &log, Level: hclog.Warn})})
	return log.String()
}

// TestWithoutEffect: a run says which of its settings change nothing, and does not say so of others.
func TestWithoutEffect(t *testing.T) {
	quadratic := func(overrides ...string) *config.Config {
		return problem(t, quadraticText, append(overrides, "train.steps=2", "train.eval_every=0")...)
	}
	const none = `quantizer.weights.plugin="none"`
	for _, c := range []struct {
		cfg  *config.Config
		want []string
	}{
		{quadratic(), nil},
		{quadratic("diagnostics={every=1, window=2}", "method.pareto_every=1"), nil},
		{quadratic(none), nil},
		{quadratic(none, `method.form="decoupled"`), []string{`method.form = "decoupled" has no effect: no weight is quantized`}},
		{quadratic(none, "method.pareto_every=1", "diagnostics.every=1"),
			[]string{"method.pareto_every has no effect: no weight is quantized", "diagnostics.every has no effect: no weight is quantized"}},
		{quadratic(`method.form="coupled"`, `method.variant="official"`), []string{`method.variant = "official" has no effect: method.form is "coupled"`}},
		{quadratic(`method.variant="official"`), nil},
		{quadratic(`quantizer.activations={plugin="quest"}`), []string{"[quantizer.activations] has no effect: no activation"}},
		{quadratic(`optimizer.rest={plugin="sgd"}`), []string{"[optimizer.rest] has no effect: nothing is left to it"}},
		{testrun.Config(t, "train.steps=1", `optimizer={plugin="muon", rest={plugin="sgd"}}`, `quantizer={activations={plugin="quest"}, weights={plugin="quest"}}`), nil},
	} {
		got := warnings(t, c.cfg)
		if n := strings.Count(got, "has no effect"); n != len(c.want) {
			t.Errorf("%d settings without effect, want %q:\n%s", n, c.want, got)
		}
		for _, want := range c.want {
			if !strings.Contains(got, want) {
				t.Errorf("want %q in\n%s", want, got)
			}
		}
	}
}

// TestErrorOfZeros: weights that are 0 and stay so have no error, relative to themselves too.
func TestErrorOfZeros(t *testing.T) {
	cfg := problem(t, toyText, "model.start=[0.0]", "train.steps=3", "train.log_every=1", "method.pareto_every=0", "schedule.rate=1e-30", "diagnostics.tensors=true")
	testrun.Train(t, cfg, train.Options{})
	tensors := 0
	for _, rec := range records(t, cfg.Train.Out) {
		tensors += len(rec.Weights)
		for name, w := range rec.Weights {
			if w.ErrorRel == nil || rec.ErrorRel == nil || *w.ErrorRel != *rec.ErrorRel || rec.Step == 1 && *rec.ErrorRel != 0 {
				t.Errorf("step %d: %s has the relative error %v, all have %v", rec.Step, name, w.ErrorRel, rec.ErrorRel)
			}
		}
	}
	if tensors < 2 {
		t.Errorf("%d tensors are recorded", tensors)
	}
}
