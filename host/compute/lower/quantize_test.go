package lower_test

import (
	"math"
	"testing"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/gomlx/core/graph"

	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/compute/lower"
	"github.com/cage-qat/cage/host/internal/testdevice"
	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/autodiff"
	"github.com/cage-qat/cage/sdk/program/reference"
)

// quest writes 4-bit QuEST fake quantization with a blockwise rotation (QuEST,
// Panferov et al. 2025, §4): the trust mask limits the gradient.
func quest(block int, shape ...int) func(b *program.Builder) {
	return func(b *program.Builder) {
		const k, largest = 2.370255550006294, 7
		x := b.Input(sdk.InputX, program.FloatType(shape...))
		z := x.Hadamard(block)
		step := z.Square().MeanRow().Sqrt().Scale(k / largest)
		empty := step.Eq(b.Const(0))
		r := z.Div(empty.Select(b.Const(1), step))
		q := r.Round().Clip(-largest-1, largest)
		mask := r.Sub(q).Abs().Le(b.Const(0.5))
		b.Output(sdk.OutputValue, q.Mul(step).Hadamard(block))
		b.Output(sdk.OutputSurrogate, mask.Select(z, z.StopGradient()).Hadamard(block))
		b.Output(sdk.OutputCodes, q.IsFinite().Select(q, b.Const(0)).Convert(program.Int))
	}
}

// absmax is plain straight-through rounding on a symmetric grid, with a surrogate
// whose gradient uses x itself: its square.
func squareSurrogate(shape ...int) func(b *program.Builder) {
	return func(b *program.Builder) {
		x := b.Input(sdk.InputX, program.FloatType(shape...))
		scale := x.Abs().MaxRow().Scale(1.0 / 7)
		b.Output(sdk.OutputValue, x.Div(scale).Round().Mul(scale))
		b.Output(sdk.OutputSurrogate, x.Square().Mul(scale.StopGradient()))
	}
}

func identitySurrogate(shape ...int) func(b *program.Builder) {
	return func(b *program.Builder) {
		x := b.Input(sdk.InputX, program.FloatType(shape...))
		b.Output(sdk.OutputValue, x.Scale(4).Round().Scale(0.25))
		b.Output(sdk.OutputSurrogate, x)
	}
}

func TestQuantize(t *testing.T) {
	for name, write := range map[string]func(b *program.Builder){
		"quest":    quest(64, 12, 192),
		"square":   squareSurrogate(12, 192),
		"identity": identitySurrogate(12, 192),
	} {
		t.Run(name, func(t *testing.T) {
			p := build(t, write)
			part, err := lower.NewQuantizer(sdk.QuantizerProgram{Program: p})
			if err != nil {
				t.Fatal(err)
			}
			x, dy := normal(1, 12, 192), normal(2, 12, 192)
			buffers := []*engine.Buffer{upload(t, dtypes.Float32, x), upload(t, dtypes.Float32, dy)}
			got := execute(t, buffers, func(g *graph.Graph, in []*graph.Node) []*graph.Node {
				value := lower.Quantize(in[0], nil, part)
				alone := lower.Lower(g, p, in[:1])[sdk.OutputValue]
				dx := graph.Gradient(graph.ReduceAllSum(graph.Mul(value, in[1])), in[0])[0]
				return []*graph.Node{value, alone, dx}
			})
			sameBits(t, testdevice.Download[float32](t, got[0]), testdevice.Download[float32](t, got[1]))
			compareGradient(t, p, x, dy, download(t, x.Type, got[2]))
		})
	}
}

func sameBits(t *testing.T, got, want []float32) {
	t.Helper()
	for i := range want {
		if math.Float32bits(got[i]) != math.Float32bits(want[i]) {
			t.Fatalf("element %d: the quantized value is %v, the program's %v", i, got[i], want[i])
		}
	}
}

func compareGradient(t *testing.T, p *program.Program, x, dy, got reference.Tensor) {
	t.Helper()
	vjp, err := autodiff.VJP(p, sdk.OutputSurrogate, sdk.InputX)
	if err != nil {
		t.Fatal(err)
	}
	want, err := reference.Run32(vjp, map[string]reference.Tensor{sdk.InputX: x, autodiff.Prefix + sdk.OutputSurrogate: dy})
	if err != nil {
		t.Fatal(err)
	}
	compare(t, "gradient", rotation, got, want[autodiff.Prefix+sdk.InputX], nil)
}

// Zero rows and rows with a number that is not finite follow the program also
// through the vectorized forms.
func TestQuantizeEdgeRows(t *testing.T) {
	x := normal(3, 6, 128)
	for i := range 128 {
		x.Floats[128+i] = 0
	}
	x.Floats[2*128+5] = nan
	x.Floats[3*128+6] = inf
	x.Floats[4*128+127] = -inf
	check(t, rotation, build(t, quest(64, 6, 128)), map[string]reference.Tensor{"x": x})
}
