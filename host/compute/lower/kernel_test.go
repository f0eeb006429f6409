package lower_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"

	"github.com/cage-qat/cage/host/compute/device"
	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/compute/lower"
	"github.com/cage-qat/cage/host/internal/pjrtrecord"
	"github.com/cage-qat/cage/sdk/program"
)

// halves is a quantizer to the nearest half, of rows; transposed computes it of columns,
// which is no kernel.
func halves(t *testing.T, transposed bool) lower.Quantizer {
	t.Helper()
	return quantizerOf(t, "halves", 64, 64, func(b *program.Builder, x program.Value) (value, surrogate program.Value) {
		y := x
		if transposed {
			y = y.Transpose(1, 0)
		}
		y = y.Scale(2).Round().Scale(0.5)
		if transposed {
			y = y.Transpose(1, 0)
		}
		return y, x.Abs().Le(b.Const(1)).Select(x, b.Const(0))
	})
}

// TestKernelCalls: with fused kernels, the passes of a quantizer are two calls of kernels
// in bfloat16, however often it is used; what is no kernel is told once and computed as
// operations, and so is everything where the device's kernels do not pass their trial.
func TestKernelCalls(t *testing.T) {
	for _, tt := range []struct {
		kernels    device.Kernels
		transposed bool
		calls      int
		warns      string
	}{
		{device.FusedKernels, false, 4, ""},
		{device.FusedKernels, true, 2, "transpose: kernels do not have this operation"}, // its backward pass is one
		{device.GraphKernels, false, 0, ""},
		{device.AutoKernels, false, 0, "the device computes nothing but zeros"},
	} {
		t.Run(fmt.Sprintf("%s %t", tt.kernels, tt.transposed), func(t *testing.T) {
			var warnings []string
			d, r, err := pjrtrecord.Open(t, 1, engine.Options{Precision: device.BFloat16, Kernels: tt.kernels, Warn: func(message string, details ...any) {
				warnings = append(warnings, fmt.Sprint(message, details))
			}})
			if err != nil {
				t.Fatal(err)
			}
			q := halves(t, tt.transposed)
			e, err := d.Compile("step", []engine.Spec{{Name: "x", Shape: shapes.Make(dtypes.Float32, 64, 64)}}, func(_ *graph.Graph, in []*graph.Node) []*graph.Node {
				value := lower.Quantize(graph.MulScalar(lower.Quantize(in[0], nil, q), 3), nil, q)
				return []*graph.Node{value, graph.Gradient(graph.ReduceAllSum(graph.Square(value)), in[0])[0]}
			})
			if err != nil {
				t.Fatal(err)
			}
			e.Close()
			programs := r.Programs(t)
			text := programs[len(programs)-1]
			if got := strings.Count(text, `"__gpu$xla.gpu.triton"`); got != tt.calls {
				t.Errorf("%d calls of kernels, want %d\n%s", got, tt.calls, text)
			}
			if got := strings.Count(text, "(tensor<64x64xbf16>) -> (tensor<64x64xbf16>"); tt.calls == 4 && got == 0 {
				t.Errorf("no kernel has bfloat16 inputs and outputs:\n%s", text)
			}
			if said := strings.Join(warnings, "\n"); len(warnings) > 1 || (said == "") != (tt.warns == "") || !strings.Contains(said, tt.warns) {
				t.Errorf("the device warns %q, want %q once", warnings, tt.warns)
			}
		})
	}
}

// TestBlockKernelCalls: products of four-bit floats are calls of a kernel, unless the trial of kernels fails.
func TestBlockKernelCalls(t *testing.T) {
	for kernels, want := range map[device.Kernels]int{device.FusedKernels: 1, device.AutoKernels: 0} {
		t.Run(string(kernels), func(t *testing.T) {
			var warnings []string
			d, r, err := pjrtrecord.Open(t, 1, engine.Options{Precision: device.BFloat16, Kernels: kernels, Products: device.BlockProducts, Warn: func(message string, details ...any) {
				warnings = append(warnings, fmt.Sprint(message, details))
			}})
			if err != nil {
				t.Fatal(err)
			}
			q := mxfp4(t, 128, 64)
			e, err := d.Compile("step", []engine.Spec{{Name: "x", Shape: shapes.Make(dtypes.Float32, 128, 64)}}, func(_ *graph.Graph, in []*graph.Node) []*graph.Node {
				y := lower.Quantize(in[0], nil, q)
				if product, ok := lower.ProductOfCodes(y, y, true); ok {
					return []*graph.Node{product}
				}
				return []*graph.Node{y}
			})
			if err != nil {
				t.Fatal(err)
			}
			e.Close()
			programs := r.Programs(t)
			if got := strings.Count(programs[len(programs)-1], `name = "cage_blocks_product"`); got != want {
				t.Errorf("%d products, want %d", got, want)
			}
			if said := strings.Join(warnings, "\n"); strings.Contains(said, "multiplied by their values and not by their codes, which takes more time[reason the device has no kernels]") != (want == 0) {
				t.Errorf("the device warns %q", warnings)
			}
		})
	}
}
