package train_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/cage-qat/cage/host/train"
	"github.com/cage-qat/cage/host/train/build"
	"github.com/cage-qat/cage/host/train/config"
	"github.com/cage-qat/cage/internal/testing/testrun"
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

// TestEstimateOfPreconditioners checks that the estimate includes the memory of refreshes. Measured
// are the largest resident sizes, in MB, of three steps with GOGC=10 and a processor per thread.
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
	for every, megabytes := range []float64{1498, 1890} {
		cfg := testrun.Parse(t, fmt.Sprintf("model = {layers = 4, width = 1024, heads = 8, context = "+
			"64}\ntrain = {steps = 3, batch = 1}\n"+
			"schedule = {rate = 3e-3}\nquantizer = {plugin = \"quest\"}\nmethod.pareto_every = "+
			"%d\ndevice.threads = 2\n"+
			"data = {train = %q, validation = %q}\n", every, files, validation))
		accurate(t, cfg, megabytes)
	}
}
