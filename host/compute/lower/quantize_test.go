package lower_test

import (
	"maps"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/compute/fakequant"
	"github.com/cage-qat/cage/host/compute/graph"
	"github.com/cage-qat/cage/host/compute/lower"
	"github.com/cage-qat/cage/host/testing/testdevice"
	"github.com/cage-qat/cage/host/testing/testkernel"
	"github.com/cage-qat/cage/host/testing/testquantizer"
	"github.com/cage-qat/cage/host/testing/testrows"
	"github.com/cage-qat/cage/internal/testing/testlevel"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/autodiff"
	"github.com/cage-qat/cage/sdk/program/reference"
	"github.com/cage-qat/cage/sdk/spec"
)

// quest writes 4-bit QuEST fake quantization with a blockwise rotation (QuEST,
// Panferov et al. 2025, §4): the trust mask limits the gradient.
func quest(block int, shape ...int) func(b *program.Builder) {
	return func(b *program.Builder) {
		const k, largest = 2.370255550006294, 7
		x := b.Input(spec.InputX, program.FloatType(shape...))
		z := x.Hadamard(block)
		step := z.Square().MeanRow().Sqrt().Scale(k / largest)
		empty := step.Eq(b.Const(0))
		r := z.Div(empty.Select(b.Const(1), step))
		q := r.Round().Clip(-largest-1, largest)
		mask := r.Sub(q).Abs().Le(b.Const(0.5))
		b.Output(spec.OutputValue, q.Mul(step).Hadamard(block))
		b.Output(spec.OutputSurrogate, mask.Select(z, z.StopGradient()).Hadamard(block))
		b.Output(spec.OutputCodes, q.IsFinite().Select(q, b.Const(0)).Convert(program.Int))
	}
}

// squareSurrogate writes rounding on a symmetric grid. Its surrogate is the square of x, whose
// gradient depends on x.
func squareSurrogate(shape ...int) func(b *program.Builder) {
	return func(b *program.Builder) {
		x := b.Input(spec.InputX, program.FloatType(shape...))
		scale := x.Abs().MaxRow().Scale(1.0 / 7)
		b.Output(spec.OutputValue, x.Div(scale).Round().Mul(scale))
		b.Output(spec.OutputSurrogate, x.Square().Mul(scale.StopGradient()))
	}
}

func identitySurrogate(shape ...int) func(b *program.Builder) {
	return func(b *program.Builder) {
		x := b.Input(spec.InputX, program.FloatType(shape...))
		b.Output(spec.OutputValue, x.Scale(4).Round().Scale(0.25))
		b.Output(spec.OutputSurrogate, x)
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
			part, err := fakequant.New(spec.Quantizer{Program: p})
			if err != nil {
				t.Fatal(err)
			}
			x, dy := normal(1, 12, 192), normal(2, 12, 192)
			buffers := []*engine.Buffer{upload(t, x), upload(t, dy)}
			got := execute(t, buffers, func(g *graph.Graph, in []*graph.Node) []*graph.Node {
				value, back := testquantizer.Quantize(in[0], testquantizer.Given{}, part)
				alone := lower.Lower(g, p, in[:1])[spec.OutputValue]
				return append([]*graph.Node{value, alone}, back(in[1])...)
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
	vjp, err := autodiff.VJP(p, spec.OutputSurrogate, spec.InputX)
	if err != nil {
		t.Fatal(err)
	}
	want, err := reference.Run32(vjp, map[string]reference.Tensor{spec.InputX: x, autodiff.Prefix +
		spec.OutputSurrogate: dy})
	if err != nil {
		t.Fatal(err)
	}
	compare(t, "gradient", rotation, got, want[autodiff.Prefix+spec.InputX], nil)
}

// TestQuantizeEdgeRows checks rows of zeros and rows with NaN or an infinity.
func TestQuantizeEdgeRows(t *testing.T) {
	if shared(t).BuildInfo().SIMD == "none" {
		t.Skip("the library's clamp makes NaN a limit, which its definition allows")
	}
	x := normal(3, 6, 128)
	for i := range 128 {
		x.Floats[128+i] = 0
	}
	x.Floats[2*128+5] = nan
	x.Floats[3*128+6] = inf
	x.Floats[4*128+127] = -inf
	check(t, rotation, build(t, quest(64, 6, 128)), map[string]reference.Tensor{"x": x})
}

// weighted returns a source of x·y·gain, with a gain that all rows share.
func weighted(t *testing.T, rows, columns int) *lower.Source {
	t.Helper()
	matrix := program.FloatType(rows, columns)
	declare := func(b *program.Builder) (x, y, gain program.Value) {
		return b.Input("x", matrix), b.Input("y", matrix), b.Input("gain", program.FloatType(1, columns))
	}
	b := program.NewBuilder("weighted")
	x, y, gain := declare(b)
	b.Output(lower.SourceValue, x.Mul(y).Mul(gain))
	b.Output("sum", x.ReduceSum(1).Reshape(rows, 1))
	forward, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	b = program.NewBuilder("weighted.backward")
	x, y, gain = declare(b)
	d := b.Input("d", matrix)
	b.Output("dx", d.Mul(y).Mul(gain))
	b.Output("dy", d.Mul(x).Mul(gain))
	backward, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	return &lower.Source{Forward: forward, Backward: backward, Rounded: true}
}

// squashing returns a quantizer with tanh of rotated rows, whose backward pass reads x.
func squashing(t *testing.T, rows, columns int) *fakequant.Quantizer {
	t.Helper()
	return quantizerOf(t, "squash", rows, columns,
		func(_ *program.Builder, x program.Value) (value, surrogate program.Value) {
			y := x.Hadamard(16).Tanh().Hadamard(16)
			return y, y
		})
}

// stepping returns a quantizer to multiples of a trained step, like LSQ.
func stepping(t *testing.T, rows, columns int) *fakequant.Quantizer {
	t.Helper()
	return quantizerOf(t, "stepping", rows, columns,
		func(b *program.Builder, x program.Value) (value, surrogate program.Value) {
			step := b.Input(spec.TrainedPrefix+"step", program.FloatType())
			return x.Div(step).Clip(-8, 7).Round().Mul(step), x.Div(step).Tanh().Mul(step)
		}, spec.Tensor{Name: "step"})
}

// TestJoined compares kernels that compute and quantize a source with the reference implementation,
// for rows that fill a tile and rows that do not.
func TestJoined(t *testing.T) {
	testlevel.Long(t, "kernels are interpreted")
	const rows = 64
	for _, columns := range []int{64, 80} {
		// rotations of kernels are less exact than the tolerance
		_, pushing := own(t, 1, rows, columns)
		for name, q := range map[string]*fakequant.Quantizer{"uniform": uniform(t, rows, columns),
			"squash":   squashing(t, rows, columns),
			"stepping": stepping(t, rows, columns), "pushing": pushing} {
			forward, backward, memory, err := lower.JoinedPasses(q, weighted(t, rows, columns))
			if err != nil {
				t.Fatal(err)
			}
			rng := rand.New(rand.NewPCG(4, uint64(columns)))
			known := map[string]reference.Tensor{}
			for _, p := range []*program.Program{forward, backward} {
				for _, in := range p.Inputs {
					if _, ok := known[in.Name]; ok {
						continue
					}
					x := reference.Tensor{Type: in.Type}
					for range in.Type.Size() { // exact in bfloat16
						x.Floats = append(x.Floats,
							float64(math.Float32frombits(math.Float32bits(float32(rng.NormFloat64()))&^0xffff)))
					}
					known[in.Name] = x
				}
				maps.Copy(known, compareJoined(t, name, p, memory, known))
			}
		}
	}
}

// compareJoined compares a program with the reference implementation, whose outputs it returns.
func compareJoined(
	t *testing.T, name string, p *program.Program, memory lower.InMemory,
	inputs map[string]reference.Tensor,
) map[string]reference.Tensor {
	t.Helper()
	k, err := testkernel.Compile(p, p.Inputs[0].Type.Shape[0], memory)
	if err != nil {
		t.Fatal(err)
	}
	taken := map[string]reference.Tensor{}
	for _, in := range p.Inputs {
		taken[in.Name] = inputs[in.Name]
	}
	got, err := k.Run(taken)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	byRows, _, err := testrows.Run(p, p.Inputs[0].Type.Shape[0], memory, taken)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	want, err := reference.Run32(p, taken)
	if err != nil {
		t.Fatal(err)
	}
	compareOutputs(t, name, p, memory, got, want)
	compareOutputs(t, name+" by rows", p, memory, byRows, want)
	return want
}

func compareOutputs(
	t *testing.T, name string, p *program.Program, memory lower.InMemory, got,
	want map[string]reference.Tensor,
) {
	t.Helper()
	for _, o := range p.Outputs {
		relative := 1e-5
		if memory[o.Name] != "" {
			relative = 1.0 / 256
		}
		if len(got[o.Name].Floats) != len(want[o.Name].Floats) {
			t.Fatalf("%s, %s: %s has %d numbers, want %d", name, p.Name, o.Name, len(got[o.Name].Floats),
				len(want[o.Name].Floats))
		}
		for i, w := range want[o.Name].Floats {
			if g := got[o.Name].Floats[i]; !(math.Abs(g-w) <= relative*math.Abs(w)+1e-5) {
				t.Errorf("%s, %s: %s %d is %g, want %g", name, p.Name, o.Name, i, g, w)
			}
		}
	}
}
