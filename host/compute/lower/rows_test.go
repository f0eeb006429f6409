package lower_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"

	"github.com/cage-qat/cage/host/compute/device"
	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/compute/lower"
	"github.com/cage-qat/cage/internal/testing/testdevice"
	"github.com/cage-qat/cage/internal/testing/testquantizer"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/spec"
)

// TestRowsOnCPU checks that the CPU computes quantizers row by row unless graph operations are
// requested, and that only the rounding to the precision differs. Programs not over rows are
// computed by graph operations, with one warning.
func TestRowsOnCPU(t *testing.T) {
	for _, tt := range []struct {
		precision  device.Precision
		kernels    device.Kernels
		transposed bool
		rounded    bool
		warns      string
	}{
		{device.BFloat16, device.AutoKernels, false, true, ""},
		{device.BFloat16, device.FusedKernels, false, true, ""},
		{device.BFloat16, device.AutoKernels, true, false,
			"transpose: executors of rows do not have this operation"},
		{device.BFloat16, device.GraphKernels, false, false, ""},
		{device.Float32, device.AutoKernels, false, false, ""},
		{device.Float32, device.GraphKernels, false, false, ""},
		{device.Float32, device.AutoKernels, true, false,
			"transpose: executors of rows do not have this operation"},
	} {
		t.Run(fmt.Sprint(tt.precision, tt.kernels, tt.transposed), func(t *testing.T) {
			var warnings []string
			d := testdevice.OpenCPU(t, engine.Options{Precision: tt.precision, Kernels: tt.kernels,
				Warn: func(message string, details ...any) {
					warnings = append(warnings, fmt.Sprint(message, details))
				}})
			q := thirds(t, tt.transposed)
			x := randomFloats(64 * 64)
			out := testdevice.Evaluate(t, d, []*engine.Buffer{testdevice.Upload(t, d, x, 64, 64)},
				func(g *graph.Graph, in []*graph.Node) []*graph.Node {
					if has := lower.HasKernels(g); has != (tt.kernels != device.GraphKernels) {
						t.Errorf("the device has kernels: %t", has)
					}
					value, back := testquantizer.Quantize(in[0], lower.Given{}, q)
					return []*graph.Node{value, graph.Add(back(in[0])[0], value)}
				})
			exact := true
			for i, v := range out[0] {
				exact = exact && math.Float32bits(v)&0xffff == 0
				if want := math.RoundToEven(float64(bfloat(x[i], tt.rounded))*3) / 3; math.Abs(
					float64(v)-want) > 1.0/128*math.Abs(want)+1e-6 {
					t.Fatalf("element %d is %g, want %g", i, v, want)
				}
			}
			if exact != tt.rounded {
				t.Errorf("all values are rounded to bfloat16: %t, want %t", exact, tt.rounded)
			}
			if said := strings.Join(warnings, "\n"); len(warnings) > 1 || (said == "") != (tt.warns == "") ||
				!strings.Contains(said, tt.warns) {
				t.Errorf("the device warns %q, want %q once", warnings, tt.warns)
			}
		})
	}
}

// thirds returns a quantizer to the nearest third, whose values are not exact in bfloat16.
func thirds(t *testing.T, transposed bool) lower.Quantizer {
	t.Helper()
	return quantizerOf(t, "thirds", 64, 64,
		func(b *program.Builder, x program.Value) (value, surrogate program.Value) {
			y := x
			if transposed {
				y = y.Transpose(1, 0)
			}
			y = y.Scale(3).Round().Div(b.Const(3))
			if transposed {
				y = y.Transpose(1, 0)
			}
			return y, x.Abs().Le(b.Const(1)).Select(x, b.Const(0))
		})
}

func randomFloats(n int) []float32 {
	rng := rand.New(rand.NewPCG(1, 7))
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(rng.NormFloat64())
	}
	return x
}

// bfloat rounds x to bfloat16 if rounded is set.
func bfloat(x float32, rounded bool) float32 {
	if !rounded {
		return x
	}
	bits := math.Float32bits(x)
	return math.Float32frombits((bits + 0x7fff + bits>>16&1) &^ 0xffff)
}

// BenchmarkRows compares a quantizer by rows and as a graph, with and without gradient, on one
// thread.
func BenchmarkRows(b *testing.B) {
	for _, s := range []struct{ rows, cols, block int }{{2048, 256, 128}, {2048, 704, 64},
		{4096, 512, 128}} {
		part, err := lower.NewQuantizer(spec.Quantizer{Program: build(b, quest(s.block, s.rows, s.cols))})
		if err != nil {
			b.Fatal(err)
		}
		x := randomFloats(s.rows * s.cols)
		for _, kernels := range []device.Kernels{device.GraphKernels, device.FusedKernels} {
			d := testdevice.OpenCPU(b, engine.Options{Precision: device.BFloat16, Kernels: kernels,
				Threads: 1})
			for name, f := range map[string]engine.BuildFunc{
				"forward": func(_ *graph.Graph, in []*graph.Node) []*graph.Node {
					value, _ := testquantizer.Quantize(in[0], lower.Given{}, part)
					return []*graph.Node{graph.Slice(value, graph.AxisRange(0, 1), graph.AxisRange())}
				},
				"both": func(_ *graph.Graph, in []*graph.Node) []*graph.Node {
					_, back := testquantizer.Quantize(in[0], lower.Given{}, part)
					dx := back(in[1])[0]
					return []*graph.Node{graph.Slice(dx, graph.AxisRange(0, 1), graph.AxisRange())}
				},
			} {
				b.Run(fmt.Sprintf("%dx%d/%s/%s", s.rows, s.cols, name, kernels), func(b *testing.B) {
					inputSpec := func(name string) engine.Spec {
						return engine.Spec{Name: name, Shape: shapes.Make(dtypes.Float32, s.rows, s.cols)}
					}
					e, err := d.Compile(b.Name(), []engine.Spec{inputSpec("x"), inputSpec("dy")}, f)
					if err != nil {
						b.Fatal(err)
					}
					defer e.Close()
					in := []*engine.Buffer{testdevice.Upload(b, d, x, s.rows, s.cols),
						testdevice.Upload(b, d, x, s.rows, s.cols)}
					best := time.Duration(math.MaxInt64)
					for b.Loop() {
						start := time.Now()
						out, err := e.Run(in, nil)
						if err != nil {
							b.Fatal(err)
						}
						if err := engine.FinalizeAll(out...); err != nil {
							b.Fatal(err)
						}
						best = min(best, time.Since(start))
					}
					b.ReportMetric(float64(best.Nanoseconds())/float64(len(x)), "best-ns/element")
				})
			}
		}
	}
}
