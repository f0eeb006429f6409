package train_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/cage-qat/cage/host/testing/testrun"
	"github.com/cage-qat/cage/host/train"
	"github.com/cage-qat/cage/host/train/build"
	"github.com/cage-qat/cage/host/train/config"
)

// accurate fails unless the estimate agrees with the measurement.
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

// TestEstimate compares estimates with the largest resident sizes, in MB, of three steps on two
// processors with AVX-512, with GOGC=10 and a processor per thread (2026-12-01). Scores of
// attention are not kept, so that many heads and a long context need little.
func TestEstimate(t *testing.T) {
	files, validation := testrun.Dataset(t)
	const quest = "quantizer.plugin = \"quest\"\noptimizer.plugin = \"adamw\""
	for _, c := range []struct {
		model, train, rest, device string
		megabytes                  float64
	}{
		{"layers = 4, width = 256, heads = 4, context = 256", "batch = 8", quest, "", 318},
		{"layers = 4, width = 512, heads = 32, context = 256", "batch = 4", quest, "", 511},
		{"layers = 1, width = 256, heads = 32, context = 4096", "batch = 1", quest, "", 196},
		{"layers = 8, width = 128, heads = 4, context = 128",
			"batch = 32, recompute = \"blocks\"", quest, "", 209},
		{"layers = 4, width = 512, heads = 8, context = 256", "batch = 4", quest,
			", precision = \"bfloat16\"", 513},
		{"layers = 4, width = 384, heads = 6, context = 128", "batch = 8",
			"optimizer = {plugin = \"sgd\", momentum = 0.9}", "", 250},
	} {
		cfg := testrun.Parse(t, fmt.Sprintf("model = {%s}\ntrain = {steps = 3, %s}\n"+
			"schedule = {rate = 3e-3}\n%s\ndevice = {threads = 2%s}\ndata = {train = %q, validation = %q}\n",
			c.model, c.train, c.rest, c.device, files, validation))
		accurate(t, cfg, c.megabytes)
	}
}

// TestEstimateOfPreconditioners checks that the estimate includes the memory of refreshes. Measured
// are the largest resident sizes, in MB, of three steps with GOGC=10 and a processor per thread.
func TestEstimateOfPreconditioners(t *testing.T) {
	files, validation := testrun.Dataset(t)
	for _, c := range []struct {
		width, threads int
		optimizer      string
		megabytes      float64
	}{
		{1024, 2, `"soap", freq = 1`, 2190},
		{512, 1, `"soap", freq = 1`, 474},
		{512, 2, `"soap"`, 655},
		{512, 8, `"soap", freq = 1`, 998},
		{512, 2, `"shampoo", freq = 1`, 391},
		{512, 2, `"muon"`, 136},
	} {
		cfg := testrun.Parse(t, fmt.Sprintf("model = {layers = 1, width = %d, heads = 8, context = "+
			"32}\ntrain = {steps = 3, batch = 2}\n"+
			"schedule = {rate = 3e-3}\noptimizer = {plugin = %s}\ndevice.threads = %d\ndata = {train = "+
			"%q, validation = %q}\n",
			c.width, c.optimizer, c.threads, files, validation))
		accurate(t, cfg, c.megabytes)
	}
}

// TestEstimateOfMeasuredGradients checks that the estimate includes the second gradient of the
// stationarity measure. Measured as above.
func TestEstimateOfMeasuredGradients(t *testing.T) {
	files, validation := testrun.Dataset(t)
	for every, megabytes := range []float64{1411, 1632} {
		cfg := testrun.Parse(t, fmt.Sprintf("model = {layers = 4, width = 1024, heads = 8, context = "+
			"64}\ntrain = {steps = 3, batch = 1}\n"+
			"schedule = {rate = 3e-3}\nquantizer = {plugin = \"quest\"}\nmethod.pareto_every = "+
			"%d\ndevice.threads = 2\n"+
			"data = {train = %q, validation = %q}\n", every, files, validation))
		accurate(t, cfg, megabytes)
	}
}
