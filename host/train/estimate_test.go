package train_test

import (
	"fmt"
	"math"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/cage-qat/cage/host/train"
	"github.com/cage-qat/cage/host/train/build"
	"github.com/cage-qat/cage/host/train/config"
	"github.com/cage-qat/cage/internal/testing/testlevel"
	"github.com/cage-qat/cage/internal/testing/testrun"
)

// llama32 is the config.json of Llama-3.2-3B, as far as sizes depend on it.
const llama32 = `{"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 3072, "num_hidden_layers": 28,
"num_attention_heads": 24, "num_key_value_heads": 8, "head_dim": 128, "intermediate_size": 8192, "vocab_size": 128256,
"max_position_embeddings": 131072, "rms_norm_eps": 1e-05, "rope_theta": 500000.0, "tie_word_embeddings": true, "rope_scaling":
{"factor": 32.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0, "original_max_position_embeddings": 8192, "rope_type": "llama3"}}`

// TestPublishedEstimates: the memory that recipes and documents state for a model of 3 billion
// parameters is what the estimate says. Neither weights nor data are needed for it.
func TestPublishedEstimates(t *testing.T) {
	testlevel.Long(t, "estimates published models")
	hub := t.TempDir()
	write(t, filepath.Join(hub, "config.json"), []byte(llama32))
	for _, c := range []struct {
		recipe string
		stated map[string]string // a file, and a pattern of the number in it
	}{
		{"paper.toml", map[string]string{
			"examples/recipes/paper.toml": `it needs (\S+) GB`,
			"docs/paper.md":               `\x60finetune\x60 .*; (\S+) GB of GPU memory by the estimate`,
		}},
		{"fp_quant.toml", map[string]string{"examples/recipes/fp_quant.toml": `it needs (\S+) GB`}},
	} {
		cfg, err := config.Load(filepath.Join("../../examples/recipes", c.recipe), []string{fmt.Sprintf("model.init=%q", hub)})
		if err != nil {
			t.Fatal(err)
		}
		report, err := train.EstimateMemory(t.Context(), cfg, train.Options{Finder: testrun.Finder(t)})
		if err != nil {
			t.Fatal(err)
		}
		if report.By == build.ByXLA {
			t.Skip("there is a GPU, and what is stated is the estimate without one")
		}
		if report.Available != nil || !report.Fits {
			t.Errorf("%s: on a GPU whose memory is not known: %+v", c.recipe, report)
		}
		for file, pattern := range c.stated {
			text := read(t, filepath.Join("../..", file))
			found := regexp.MustCompile(pattern).FindSubmatch(text)
			if got := build.Bytes(report.Bytes); found == nil || string(found[1])+" GB" != got {
				t.Errorf("%s says %q, the estimate of %s %s", file, found, c.recipe, got)
			}
		}
		checkParts(t, c.recipe, report)
	}
}

// checkParts compares the parts that the comment of a recipe lists with those of the estimate.
func checkParts(t *testing.T, recipe string, report *build.Report) {
	t.Helper()
	text := read(t, filepath.Join("../../examples/recipes", recipe))
	flat := strings.ReplaceAll(string(text), "\n#", "")
	stated := map[string]string{
		"gradients, and": `gradients (\d+\.\d)`, "states of": `optimizer's states (\d+\.\d)`, "quantized copies": `quantized copies (\d+\.\d)`,
		"parameters": `, parameters (\d+\.\d)`, "attention": `attention (\d+\.\d)`, "activations": `activations (\d+\.\d)`, "logits": `logits (\d+\.\d)`,
	}
	if recipe == "fp_quant.toml" {
		stated = map[string]string{"parameters of the teacher": `teacher's weights are (\d+\.\d)`, "logits": `what is made of them (\d+\.\d)`}
	}
	for what, pattern := range stated {
		found := regexp.MustCompile(pattern).FindStringSubmatch(flat)
		for _, p := range report.Parts {
			if strings.HasPrefix(p.What, what) && (found == nil || fmt.Sprintf("%.1f", p.Bytes/1e9) != found[1]) && (what != "parameters" || p.What == what) {
				t.Errorf("%s says %q of %s, the estimate %s", recipe, found, what, p)
			}
		}
	}
}

// accurate fails unless the estimate is what was measured.
func accurate(t *testing.T, cfg *config.Config, megabytes float64) {
	t.Helper()
	report, err := train.EstimateMemory(t.Context(), cfg, train.Options{Finder: testrun.Finder(t)})
	if err != nil {
		t.Fatal(err)
	}
	if got := report.Bytes / 1e6 / megabytes; math.Abs(got-1) > build.Accuracy {
		t.Errorf("the estimate is %.2f of %v MB, which were measured", got, megabytes)
	}
}

// TestEstimateOfPreconditioners: what refreshes work with is in the estimate. Measured are the largest resident sizes, in MB, of
// three steps with GOGC=10 and as many processors as threads.
func TestEstimateOfPreconditioners(t *testing.T) {
	files, validation := testrun.Dataset(t)
	for _, c := range []struct {
		width, threads int
		optimizer      string
		megabytes      float64
	}{
		{1024, 2, `"soap", freq = 1`, 2548},
		{512, 1, `"soap", freq = 1`, 517},
		{512, 2, `"soap"`, 653},
		{512, 8, `"soap", freq = 1`, 1103},
		{512, 2, `"shampoo", freq = 1`, 379},
		{512, 2, `"muon"`, 167},
	} {
		cfg := testrun.Parse(t, fmt.Sprintf("model = {layers = 1, width = %d, heads = 8, context = 32}\ntrain = {steps = 3, batch = 2}\n"+
			"schedule = {rate = 3e-3}\noptimizer = {plugin = %s}\ndevice.threads = %d\ndata = {train = %q, validation = %q}\n",
			c.width, c.optimizer, c.threads, files, validation))
		accurate(t, cfg, c.megabytes)
	}
}

// TestEstimateOfMeasuredGradients: a second gradient, for the measure of stationarity, is in the estimate. Measured as above.
func TestEstimateOfMeasuredGradients(t *testing.T) {
	files, validation := testrun.Dataset(t)
	for every, megabytes := range []float64{1498, 1890} {
		cfg := testrun.Parse(t, fmt.Sprintf("model = {layers = 4, width = 1024, heads = 8, context = 64}\ntrain = {steps = 3, batch = 1}\n"+
			"schedule = {rate = 3e-3}\nquantizer = {plugin = \"quest\"}\nmethod.pareto_every = %d\ndevice.threads = 2\n"+
			"data = {train = %q, validation = %q}\n", every, files, validation))
		accurate(t, cfg, megabytes)
	}
}
