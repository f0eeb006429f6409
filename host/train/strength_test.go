package train_test

import (
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hashicorp/go-hclog"

	"github.com/cage-qat/cage/host/testing/testrun"
	"github.com/cage-qat/cage/host/train"
	"github.com/cage-qat/cage/host/train/config"
	"github.com/cage-qat/cage/host/train/metrics"
	"github.com/cage-qat/cage/host/train/plugin"
	"github.com/cage-qat/cage/internal/testing/testlevel"
)

const fineTuningRate = `schedule={kind="constant", rate=1e-4}`

// TestStrengthIsLambda checks that a strength gives the same bits as the λ that it resolves to.
func TestStrengthIsLambda(t *testing.T) {
	testlevel.Long(t, "trains several runs")
	for _, variant := range []string{"paper", "official"} {
		cfg := testrun.Config(t, "train.steps=20", "train.log_every=1",
			fmt.Sprintf("method={strength=0.5, silence=0.5, variant=%q}", variant))
		testrun.Train(t, cfg, train.Options{})
		λ := cfg.ResolvedMethod().CAGE.Lambda
		other := testrun.Elsewhere(t, cfg, fmt.Sprintf("method.lambda=%v", λ))
		testrun.Train(t, other, train.Options{})
		testrun.SameRun(t, variant, cfg.Train.Out, other.Train.Out)
		list := records(t, cfg.Train.Out)
		if s := list[len(list)-1].Strength; s == nil || math.Abs(float64(*s)-0.5) > 1e-12 {
			t.Errorf("the strength at the end is %v, want 0.5", s)
		}
	}
}

// TestStrengthOfGroups checks that the relative error of a weight that nearly stands still falls by
// e^(−S) for any rate of its group. The rate is so low that only the correction moves the weights.
func TestStrengthOfGroups(t *testing.T) {
	cfg := testrun.Config(t, "train.steps=40", "train.log_every=1", "train.weight_decay=0.0",
		`schedule={kind="constant", rate=1e-9}`,
		`quantizer={weights={plugin="absmax", granularity="tensor", bits=4}}`,
		"method={strength=1.0, silence=0.5}", "diagnostics.tensors=true",
		`optimizer={plugin="sgd", momentum=0.0, groups=[{match="*qkv*", rate=0.1}, {match="*down*", rate=7.0}]}`)
	testrun.Train(t, cfg, train.Options{})
	list := slices.DeleteFunc(records(t, cfg.Train.Out),
		func(r metrics.Record) bool { return r.Weights == nil })
	first, last := list[0], list[len(list)-1]
	seen := map[string]bool{}
	for name, w := range first.Weights {
		if w.ErrorRel == nil || *w.ErrorRel == 0 { // not quantized
			continue
		}
		ratio := math.Sqrt(float64(*last.Weights[name].ErrorRel) / float64(*w.ErrorRel))
		// The last record precedes the last step, whose α·λ is about 1/10.
		if math.Abs(math.Log(ratio)+1) > 0.15 {
			t.Errorf("%s keeps %v of its error, want about e^−1", name, ratio)
		}
		seen[name] = true
	}
	if len(seen) < 4 {
		t.Errorf("measured only %v", seen)
	}
}

// TestStrengthWithoutRates checks that a strength requires rates that are known before the run.
func TestStrengthWithoutRates(t *testing.T) {
	finder, err := plugin.NewFinder() // builds it
	if err != nil {
		t.Fatal(err)
	}
	exe, err := finder.Find(t.Context(), filepath.Join("..", "..", "examples", "plugins", "prodigy"))
	if err != nil {
		t.Fatal(err)
	}
	cfg := testrun.Config(t, "train.steps=4", fmt.Sprintf("optimizer={plugin=%q}", exe.Path),
		"method={strength=0.5}")
	_, err = train.Run(t.Context(), cfg, train.Options{Finder: testrun.Finder(t)})
	if err == nil || !strings.Contains(err.Error(),
		"chooses its learning rate while it trains; want method.lambda") {
		t.Errorf("with an optimizer that chooses its rate: %v", err)
	}
}

// TestStrengthIsReported checks the messages about usual, weak and strong corrections.
func TestStrengthIsReported(t *testing.T) {
	testlevel.Long(t, "trains several runs")
	messages := func(cfg *config.Config) string {
		var log strings.Builder
		testrun.Train(t, cfg,
			train.Options{Logger: hclog.New(&hclog.LoggerOptions{Output: &log, Level: hclog.Info})})
		return log.String()
	}
	short := []string{"train.steps=10", fineTuningRate}
	for _, c := range []struct {
		settings []string
		want     []string
	}{
		{[]string{"method={silence=0.5}"},
			[]string{"[INFO]", "removes up to 0.24 % of the quantization error", "strength=0.0024"}},
		{[]string{"method={lambda=2.0}"}, []string{"[WARN]", "hardly moves weights: strength=0.0002",
			`set="method.strength = 0.0024"`}},
		{[]string{"method={strength=9.0, silence=0.0}"},
			[]string{"[WARN]", "past their quantized values"}},
		{[]string{"method={strength=6.0, silence=0.0}", "train.steps=30"},
			[]string{"[WARN]", "before the run ends: strength=6"}},
		{[]string{`method={form="coupled", lambda=0.1}`}, []string{"part of the gradient", "lambda=0.1"}},
		{[]string{`method={form="off"}`}, nil},
		{[]string{"method={lambda=2000.0}", `optimizer.groups=[{roles="matrix", rate=0.1}]`},
			[]string{"strength=0.02"}},
		{[]string{"method={lambda=2000.0}", `optimizer.groups=[{roles="matrix", rate=0.0}]`},
			[]string{"[INFO]", "or no quantized weight is trained"}},
		{[]string{"method.strength=0.0"}, []string{"[INFO]", "does nothing: its strength is 0"}},
		{[]string{"schedule={kind=\"linear\", rate=1e-4, floor=0.0}", "method={silence=0.99999}"},
			[]string{"[WARN]", "the correction does nothing: the learning rate is 0"}},
		{[]string{"method.strength=1.0", `quantizer={plugin="none"}`},
			[]string{"[WARN]", "method.strength has no effect: no weight is quantized"}},
	} {
		got := messages(testrun.Config(t, append(short, c.settings...)...))
		for _, want := range c.want {
			if !strings.Contains(got, want) {
				t.Errorf("%v: want %q in\n%s", c.settings, want, got)
			}
		}
		if c.want == nil && strings.Contains(got, "correction") {
			t.Errorf("%v: the correction is mentioned in\n%s", c.settings, got)
		}
	}
}

// TestExportIsReported checks that a fine-tuning reports whether exports can pack its weights.
func TestExportIsReported(t *testing.T) {
	testlevel.Long(t, "trains several runs")
	fromHub := func(settings ...string) *config.Config {
		cfg, _ := testrun.FromHub(t, append(settings, "train.steps=1")...)
		return cfg
	}
	for want, cfg := range map[string]*config.Config{
		"exports will store quantized weights as floats, because their quantizer rotates " +
			"them": fromHub(`quantizer={plugin="quest"}`),
		"because their quantizer does not declare what its codes " +
			"represent": fromHub(`quantizer={plugin="grid", step=0.1}`),
		"exports can pack the weights: cage export FILE.toml --to gguf --check names the type: " +
			"codes=integer levels=15": fromHub(`quantizer={plugin="absmax"}`),
		"": testrun.Config(t, "train.steps=1"),
	} {
		var log strings.Builder
		testrun.Train(t, cfg,
			train.Options{Logger: hclog.New(&hclog.LoggerOptions{Output: &log, Level: hclog.Info})})
		if got := log.String(); !strings.Contains(got, want) || want == "" &&
			strings.Contains(got, "export") {
			t.Errorf("want %q in\n%s", want, got)
		}
	}
}
