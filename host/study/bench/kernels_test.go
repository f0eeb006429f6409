package bench

import (
	"fmt"
	"testing"

	"github.com/cage-qat/cage/host/compute/device"
	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/train/config"
	"github.com/cage-qat/cage/internal/testing/pjrtrecord"
	"github.com/cage-qat/cage/internal/testing/testrun"
)

// kernelConfig is a step with kernels.
func kernelConfig(t *testing.T, kind string) *config.Config {
	t.Helper()
	return parse(t, "model.width=128", "model.context=32", "model.vocab=256", fmt.Sprintf("device.kind=%q", kind))
}

// TestKernels: the CPU lists the kernels that a GPU has, which times each of them; what is predicted of one is found by its key.
func TestKernels(t *testing.T) {
	options := KernelOptions{Options: Options{Rounds: 2, Finder: testrun.Finder(t)}, Rate: 1e9}
	onCPU, err := Kernels(t.Context(), kernelConfig(t, device.CPU), options)
	if err != nil {
		t.Fatal(err)
	}
	kinds := map[string]int{}
	for _, k := range onCPU.Kernels {
		kinds[k.Kind]++
		if k.Seconds != 0 || k.Calls == 0 || k.Instances == 0 || k.Bytes == 0 || k.Bound != float64(k.Bytes)/1e9 || len(k.Inputs) == 0 || len(k.Outputs) == 0 {
			t.Errorf("the CPU says of a kernel %+v", k)
		}
	}
	if kinds["quantization"] < 4 || kinds["softmax and loss"] != 1 {
		t.Errorf("kernels of a step by their kinds: %v", kinds)
	}
	plugin, _ := pjrtrecord.Plugin(t, 1)
	t.Setenv(engine.PluginPathVariable, plugin)
	key := onCPU.Kernels[0].Key
	options.Predictions = map[string]KernelPrediction{key: {Seconds: []float64{1, 2}, Instructions: 3, Registers: 4}}
	onGPU, err := Kernels(t.Context(), kernelConfig(t, device.CUDA), options)
	if err != nil {
		t.Fatal(err)
	}
	if len(onGPU.Kernels) != len(onCPU.Kernels) {
		t.Fatalf("a GPU has %d kernels, on the CPU %d are listed", len(onGPU.Kernels), len(onCPU.Kernels))
	}
	found := 0
	for _, k := range onGPU.Kernels {
		if k.Instructions == 3 && k.Registers == 4 && len(k.Predicted) == 2 {
			found++
		}
	}
	if found != 1 {
		t.Errorf("%d kernels have the prediction of one", found)
	}
}
