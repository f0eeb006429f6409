package quantize_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/hashicorp/go-hclog"

	"github.com/cage-qat/cage/host/deploy/trained"
	"github.com/cage-qat/cage/host/testing/testrun"
	"github.com/cage-qat/cage/host/train"
)

// TestStart checks that a training that starts from a model that GPTQ has quantized has the loss of
// that model at first, if its quantizer has trained scales: they are those of GPTQ, not those that
// the quantizer would choose for the quantized weights. Another quantizer chooses its own.
func TestStart(t *testing.T) {
	cfg := fullPrecision(t)
	for name, c := range map[string]quantizerCase{
		"lsq":             {"lsq", map[string]any{"bits": int64(3)}},
		"lsq in rows":     {"lsq", map[string]any{"bits": int64(2), "granularity": "row"}},
		"paretoq":         {"paretoq", map[string]any{"bits": int64(2)}},
		"paretoq ternary": {"paretoq", map[string]any{"bits": int64(0)}},
		"another":         {"lsq", map[string]any{"bits": int64(4)}},
	} {
		t.Run(name, func(t *testing.T) {
			o := gptqOptions(t, c.plugin, c.params)
			run(t, cfg.Train.Out, o)
			opened := open(t, o.Out, trained.Options{Finder: testrun.Finder(t)})
			want, _, err := opened.Evaluate(t.Context(), 0)
			if err != nil {
				t.Fatal(err)
			}
			keys := fmt.Sprintf("plugin=%q, bits=%v", c.plugin, c.params["bits"])
			if name == "another" {
				keys = `plugin="lsq", bits=3`
			}
			if c.params["granularity"] != nil {
				keys += `, granularity="row"`
			}
			log := &strings.Builder{}
			next := testrun.Config(t, fmt.Sprintf("model={init=%q}", o.Out),
				"quantizer={weights={"+keys+"}}", "train.steps=1", "schedule={rate=1e-30, warmup=0.0}",
				"train.final_eval_batches=0", "train.eval_batches=0", `method.form="off"`)
			got := float64(*testrun.Train(t, next, train.Options{
				Logger: hclog.New(&hclog.LoggerOptions{Output: log})}).ValLoss)
			taken := strings.Contains(log.String(), "quantizers start from the scales of model.init")
			if alike := name != "another"; (got == want) != alike || taken != alike {
				t.Errorf("the loss is %v, that of the quantized model %v; scales are taken: %t", got, want, taken)
			}
		})
	}
}
