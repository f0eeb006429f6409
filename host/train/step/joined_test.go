package step_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/cage-qat/cage/host/compute/device"
	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/internal/testdevice"
	"github.com/cage-qat/cage/host/internal/testrun"
	"github.com/cage-qat/cage/host/train/step"
	"github.com/cage-qat/cage/internal/effort"
	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/program"
)

// squash is smooth, so that what is rounded to bfloat16 moves no value by more: tanh of half of x, rotated. Its backward
// pass reads x.
type squash struct{}

func (squash) Describe() sdk.Description { return sdk.Description{Name: "squash"} }

func (squash) Quantize(b *program.Builder, x program.Value, _ sdk.Site) (sdk.Quantized, error) {
	y := x.Hadamard(16).Scale(0.5).Tanh().Hadamard(16).Scale(2)
	return sdk.Quantized{Value: y, Surrogate: y}, nil
}

// TestKernelBodies computes all that kernels compute, each as the operations that it stands for: the loss's sums, and
// norms and gates that are joined to quantizers. Losses and gradients are those without kernels but for the rounding of
// what lies in memory in bfloat16.
func TestKernelBodies(t *testing.T) {
	effort.Long(t, "compiles many steps")
	for _, kind := range []string{"llama", "olmo2", "qwen3"} {
		for name, q := range map[string]sdk.Quantizer{"identity": identity{}, "squash": squash{}} {
			for _, recompute := range []string{"none", "blocks"} {
				t.Run(kind+name+recompute, func(t *testing.T) {
					cfg := sgdConfig(t, "model.vocab=1024", fmt.Sprintf("model.kind=%q", kind), fmt.Sprintf("train.recompute=%q", recompute))
					plan := planOf(t, cfg, q, descent{})
					plan.Dispatch = step.Single
					compareBodies(t, plan, batches(cfg, 7, 1))
				})
			}
		}
	}
}

func compareBodies(t *testing.T, plan step.Plan, b [][]int32) {
	t.Helper()
	var found [2][][]float64
	for i, kernels := range []device.Kernels{device.GraphKernels, device.BodyKernels} {
		c, err := step.Compile(testdevice.Open(t, engine.Options{Precision: device.BFloat16, Kernels: kernels}), plan)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(c.Close)
		found[i] = append(gradients(t, c, b), []float64{run(t, c, newState(t, c), b, step.Settings{Step: 1}).Loss})
	}
	differ := false
	for i, want := range found[0] {
		name := "loss"
		if params := plan.Model.Params(); i < len(params) {
			name = "gradient of " + params[i].Name
		}
		apart := make([]float64, len(want))
		for j := range want {
			apart[j] = found[1][i][j] - want[j]
			differ = differ || apart[j] != 0
		}
		const most = 0.02
		if d := math.Sqrt(norm2(apart) / norm2(want)); !(d < most) {
			t.Errorf("%s: %.2g of its norm from that without kernels", name, d)
		}
	}
	if !differ {
		t.Error("all is the same, to the last bit: there were no kernels")
	}
}

// TestKernelBodiesOfPlugins trains with the quantizers of plugins so, with products of values and of codes. A value that
// is rounded can move from one code to the next, so that single gradients differ; losses hardly do.
func TestKernelBodiesOfPlugins(t *testing.T) {
	effort.Long(t, "compiles the kernels of all quantizers")
	for _, quantizer := range []string{`{plugin="quest"}`, `{plugin="quest", form="official", mask="clip"}`, `{plugin="mxfp4"}`, `{plugin="nvfp4"}`, `{plugin="lsq"}`, `{plugin="absmax", bits=8}`} {
		for _, products := range []device.Products{device.FloatProducts, device.IntegerProducts} {
			t.Run(fmt.Sprint(quantizer, products), func(t *testing.T) {
				cfg := testrun.Config(t, testrun.TwoLayers, "model.vocab=1024", "quantizer="+quantizer)
				o := engine.Options{Precision: device.BFloat16, Products: products, Kernels: device.GraphKernels}
				want := lossesBy(t, cfg, o, step.Single)
				o.Kernels = device.BodyKernels
				for i, got := range lossesBy(t, cfg, o, step.Single) {
					near(t, fmt.Sprint("loss ", i), got, want[i], 0.02)
				}
			})
		}
	}
}
