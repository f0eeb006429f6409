package train_test

import (
	"os"
	"strings"
	"testing"

	"github.com/cage-qat/cage/host/deploy/posttrain/settings"
	"github.com/cage-qat/cage/host/internal/testrun"
	"github.com/cage-qat/cage/host/train"
	"github.com/cage-qat/cage/host/train/config"
	"github.com/cage-qat/cage/host/train/rundir"
)

// lotionRun is a run that was trained with LOTION.
func lotionRun(t *testing.T) *config.Config {
	t.Helper()
	cfg := testrun.Config(t, `quantizer={weights={plugin="absmax"}}`, `method={name="lotion"}`, "train.steps=2")
	testrun.Train(t, cfg, train.Options{})
	return cfg
}

// TestEvaluateFullPrecision: what a training with gradients in full precision cannot have, its evaluation with another
// quantizer can: quantized activations, and trained parameters, which begin as in any run.
func TestEvaluateFullPrecision(t *testing.T) {
	full := testrun.Config(t, `quantizer={weights={plugin="absmax"}}`, `method={gradient="full"}`, "train.steps=2")
	testrun.Train(t, full, train.Options{})
	for method, cfg := range map[string]*config.Config{"lotion": lotionRun(t), "gradient = full": full} {
		for _, q := range []*train.Quantizer{{Plugin: "mxfp4"}, {Plugin: "lsq", WeightsOnly: true}} {
			opened, err := train.Open(t.Context(), cfg.Train.Out, train.OpenOptions{Quantizer: q, Finder: testrun.Finder(t)})
			if err != nil {
				t.Errorf("%s, %s: %v", method, q, err)
				continue
			}
			if loss, _, err := opened.Evaluate(t.Context(), 1); err != nil || !(loss > 0 && loss < 8) {
				t.Errorf("%s, %s: loss %v, error %v", method, q, loss, err)
			}
			opened.Close()
		}
	}
}

// TestQuantizeLOTION: the result of a run of LOTION, without its quantizer of weights, can be opened; so can one that names
// the method, as it was once written.
func TestQuantizeLOTION(t *testing.T) {
	cfg := lotionRun(t)
	o := gptqOptions(t, "absmax", nil)
	o.Method, o.Windows = settings.RTN, 0
	if _, err := train.Quantize(t.Context(), cfg.Train.Out, o); err != nil {
		t.Fatal(err)
	}
	checkHeld(t, cfg, o.Out)
	path := rundir.At(o.Out).Config()
	text, err := path.ReadFile()
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "[method]")
	_, rest, found := strings.Cut(rest, "\n\n")
	if !found {
		t.Fatalf("no table behind [method] in\n%s", text)
	}
	before, _, _ := strings.Cut(string(text), "[method]")
	if err := os.WriteFile(path.Name, []byte(before+"[method]\nname = \"lotion\"\n\n"+rest), 0o644); err != nil {
		t.Fatal(err)
	}
	checkHeld(t, cfg, o.Out)
}
