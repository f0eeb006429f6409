package lower_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/cage-qat/cage/host/compute/device"
	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/compute/fakequant"
	"github.com/cage-qat/cage/host/compute/graph"
	"github.com/cage-qat/cage/host/compute/lower"
	"github.com/cage-qat/cage/host/compute/shapes"
	"github.com/cage-qat/cage/host/testing/pjrtrecord"
	"github.com/cage-qat/cage/host/testing/testdevice"
	"github.com/cage-qat/cage/host/testing/testquantizer"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/autodiff"
	"github.com/cage-qat/cage/sdk/program/transform"
	"github.com/cage-qat/cage/sdk/spec"
)

// halves returns a quantizer of rows to the nearest half. If transposed is set, it quantizes
// columns, which no kernel does.
func halves(t *testing.T, transposed bool) *fakequant.Quantizer {
	t.Helper()
	return quantizerOf(t, "halves", 64, 64,
		func(b *program.Builder, x program.Value) (value, surrogate program.Value) {
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

// TestKernelCalls checks that, with fused kernels, the two passes of a quantizer are two kernel
// calls in bfloat16, each time it is used. A pass without a kernel, or any pass if kernels fail
// their trial, is computed by operations, with one warning.
func TestKernelCalls(t *testing.T) {
	for _, tt := range []struct {
		kernels    device.Kernels
		transposed bool
		calls      int
		warns      string
	}{
		{device.FusedKernels, false, 4, ""},
		// only the backward pass is a kernel
		{device.FusedKernels, true, 2, "transpose: executors of rows do not have this operation"},
		{device.GraphKernels, false, 0, ""},
		{device.AutoKernels, false, 0, "an output of the graph has only zeros"},
	} {
		t.Run(fmt.Sprintf("%s %t", tt.kernels, tt.transposed), func(t *testing.T) {
			var warnings []string
			d, r, err := pjrtrecord.Open(t, 1,
				engine.Options{Precision: device.BFloat16, Kernels: tt.kernels,
					Warn: func(message string, details ...any) {
						warnings = append(warnings, fmt.Sprint(message, details))
					}})
			if err != nil {
				t.Fatal(err)
			}
			q := halves(t, tt.transposed)
			e, err := d.Compile("step",
				[]engine.Spec{{Name: "x", Shape: shapes.Make(shapes.Float32, 64, 64)}},
				func(g *graph.Graph, in []*graph.Node) []*graph.Node {
					out := lower.Calls{}.Lower(g, twice(t, q.Call(true)), in, "")
					return []*graph.Node{out["value"], out["d.x"]}
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
			if got := strings.Count(text, "(tensor<64x64xbf16>) -> (tensor<64x64xbf16>"); tt.calls == 4 &&
				got == 0 {
				t.Errorf("no kernel has bfloat16 inputs and outputs:\n%s", text)
			}
			if said := strings.Join(warnings, "\n"); len(warnings) > 1 || (said == "") != (tt.warns == "") ||
				!strings.Contains(said, tt.warns) {
				t.Errorf("the device warns %q, want %q once", warnings, tt.warns)
			}
		})
	}
}

// twice returns the program of Q(3·Q(x)), and of the gradient of the sum of its squares.
func twice(t *testing.T, c *program.Call) *program.Program {
	t.Helper()
	b := program.NewSimplifier("twice")
	first := b.Call(c, b.Input("x", c.Meaning.Inputs[0].Type))[0]
	b.Output("value", b.Call(c, first.Scale(3))[0])
	p, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	vjp, err := autodiff.VJP(p, "value", "x")
	if err != nil {
		t.Fatal(err)
	}
	b = program.NewSimplifier("twice")
	x := b.Input("x", c.Meaning.Inputs[0].Type)
	value := transform.Inline(b, p, x)["value"]
	b.Output("value", value)
	b.Output("d.x", transform.Inline(b, vjp, x, value.Scale(2))["d.x"])
	if p, err = b.Build(); err != nil {
		t.Fatal(err)
	}
	return p
}

// quantizerOf returns a quantizer of matrices with the given value and surrogate.
func quantizerOf(t *testing.T, name string, rows, columns int,
	make func(b *program.Builder, x program.Value) (value, surrogate program.Value),
	trained ...spec.Tensor) *fakequant.Quantizer {
	t.Helper()
	b := program.NewBuilder(name)
	value, surrogate := make(b, b.Input(spec.InputX, program.FloatType(rows, columns)))
	b.Output(spec.OutputValue, value)
	b.Output(spec.OutputSurrogate, surrogate)
	p, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	q, err := fakequant.New(spec.Quantizer{Program: p, Trained: trained})
	if err != nil {
		t.Fatal(err)
	}
	return q
}

// uniform returns a quantizer of rows to integers between −8 and 7 times a scale of the row.
func uniform(t *testing.T, rows, columns int) *fakequant.Quantizer {
	t.Helper()
	return quantizerOf(t, "uniform", rows, columns,
		func(_ *program.Builder, x program.Value) (value, surrogate program.Value) {
			scale := x.Abs().MaxRow().Scale(1.0 / 8)
			return x.Div(scale).Clip(-8, 7).Round().Mul(scale), x
		})
}

// TestProductOfCodes checks that the product of codes is more exact than that of values in
// bfloat16, and that rounding it to bfloat16 adds only the error of this rounding.
func TestProductOfCodes(t *testing.T) {
	wrong := productErrors(t, engine.Options{Products: device.IntegerProducts}, uniform)
	if wrong[0] > 1e-6 || wrong[1] > 1.0/256 || wrong[1] < 100*wrong[0] || wrong[2] < 100*wrong[0] {
		t.Errorf("relative errors of %g", wrong)
	}
}

// productErrors returns the relative errors of the product of two quantized matrices, computed from
// codes, from codes and rounded at the end, and from values.
func productErrors(
	t *testing.T, o engine.Options,
	quantizer func(t *testing.T, rows, columns int) *fakequant.Quantizer,
) (wrong [3]float64) {
	t.Helper()
	const tokens, in, out = 128, 1024, 32
	rng := rand.New(rand.NewPCG(1, 2))
	random := func(n int) []float32 { // exact in bfloat16
		values := make([]float32, n)
		for i := range values {
			values[i] = math.Float32frombits(math.Float32bits(float32(rng.NormFloat64())) &^ 0xffff)
		}
		return values
	}
	x, w := random(tokens*in), random(out*in)
	qx, qw := quantizer(t, tokens, in), quantizer(t, out, in)
	exact := testdevice.Open(t, engine.Options{})
	values := testdevice.Evaluate(t, exact, uploaded(t, exact, x, w, tokens, out, in),
		func(_ *graph.Graph, in []*graph.Node) []*graph.Node {
			a, _ := testquantizer.Quantize(in[0], testquantizer.Given{}, qx)
			b, _ := testquantizer.Quantize(in[1], testquantizer.Given{}, qw)
			return []*graph.Node{a, b}
		})
	o.Precision = device.BFloat16
	d := testdevice.Open(t, o)
	got := testdevice.Evaluate(t, d, uploaded(t, d, x, w, tokens, out, in),
		func(_ *graph.Graph, in []*graph.Node) []*graph.Node {
			out := testquantizer.Lower(in, func(in []program.Value) (out []program.Value) {
				for i, q := range []*fakequant.Quantizer{qx, qw} {
					value, _, codes := q.Forward(in[i], fakequant.Given{}, true)
					out = append(append(out, value), codes...)
				}
				return out
			})
			product := func(rounded bool) *graph.Node {
				return engine.DotIntegers(graph.ConvertDType(out[1], shapes.Int8),
					graph.ConvertDType(out[4], shapes.Int8), out[2], out[5], rounded)
			}
			return []*graph.Node{product(false), product(true),
				engine.DotGeneral(out[0], []int{1}, nil, out[3], []int{1}, nil)}
		})
	var size float64
	for i := range tokens {
		for j := range out {
			want := 0.0
			for k := range in {
				want += float64(values[0][i*in+k]) * float64(values[1][j*in+k])
			}
			size += want * want
			for f := range wrong {
				e := float64(got[f][i*out+j]) - want
				wrong[f] += e * e
			}
		}
	}
	for f := range wrong {
		wrong[f] = math.Sqrt(wrong[f] / size)
	}
	t.Logf("relative errors: of codes %.2g, rounded at the end %.2g, of values in bfloat16 %.2g",
		wrong[0], wrong[1], wrong[2])
	return wrong
}

func uploaded(
	t *testing.T, d *engine.Device, x, w []float32, tokens, out, in int,
) []*engine.Buffer {
	t.Helper()
	return []*engine.Buffer{testdevice.Upload(t, d, x, tokens, in),
		testdevice.Upload(t, d, w, out, in)}
}
