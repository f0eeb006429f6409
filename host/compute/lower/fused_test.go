package lower_test

import (
	"maps"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/cage-qat/cage/host/compute/lower"
	"github.com/cage-qat/cage/host/internal/testkernel"
	"github.com/cage-qat/cage/internal/effort"
	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/reference"
)

// weighted is x·y·gain, with a gain that all rows share.
func weighted(t *testing.T, rows, columns int) lower.Source {
	t.Helper()
	matrix := program.FloatType(rows, columns)
	declare := func(b *program.Builder) (x, y, gain program.Value) {
		return b.Input("x", matrix), b.Input("y", matrix), b.Input("gain", program.FloatType(1, columns))
	}
	b := program.NewBuilder("weighted")
	x, y, gain := declare(b)
	b.Output(lower.SourceValue, x.Mul(y).Mul(gain))
	b.Output("sum", x.Sum(1).Reshape(rows, 1))
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
	return lower.Source{Forward: forward, Backward: backward, InBFloat16: true}
}

// squashing is tanh, whose backward pass reads x, of rotated rows.
func squashing(t *testing.T, rows, columns int) lower.Quantizer {
	t.Helper()
	return quantizerOf(t, "squash", rows, columns, func(_ *program.Builder, x program.Value) (value, surrogate program.Value) {
		y := x.Hadamard(16).Tanh().Hadamard(16)
		return y, y
	})
}

// stepping rounds to multiples of a trained step, like LSQ.
func stepping(t *testing.T, rows, columns int) lower.Quantizer {
	t.Helper()
	return quantizerOf(t, "stepping", rows, columns, func(b *program.Builder, x program.Value) (value, surrogate program.Value) {
		step := b.Input(sdk.TrainedPrefix+"step", program.FloatType())
		return x.Div(step).Clip(-8, 7).Round().Mul(step), x.Div(step).Tanh().Mul(step)
	}, sdk.StateTensor{Name: "step"})
}

// TestFused: kernels that compute a source and quantize it compute what the oracle does, in rows that fill a tile
// and in others.
func TestFused(t *testing.T) {
	effort.Long(t, "kernels are interpreted")
	const rows = 64
	for _, columns := range []int{64, 80} {
		for name, q := range map[string]lower.Quantizer{"uniform": uniform(t, rows, columns), "squash": squashing(t, rows, columns), "stepping": stepping(t, rows, columns)} {
			forward, backward, memory, err := lower.Fused(q, weighted(t, rows, columns))
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
						x.Floats = append(x.Floats, float64(math.Float32frombits(math.Float32bits(float32(rng.NormFloat64()))&^0xffff)))
					}
					known[in.Name] = x
				}
				maps.Copy(known, compareFused(t, name, p, memory, known))
			}
		}
	}
}

// compareFused returns what the oracle computes.
func compareFused(t *testing.T, name string, p *program.Program, memory lower.InMemory, inputs map[string]reference.Tensor) map[string]reference.Tensor {
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
	want, err := reference.Run32(p, taken)
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range p.Outputs {
		relative := 1e-5
		if memory[o.Name] != "" {
			relative = 1.0 / 256
		}
		if len(got[o.Name].Floats) != len(want[o.Name].Floats) {
			t.Fatalf("%s, %s: %s has %d numbers, want %d", name, p.Name, o.Name, len(got[o.Name].Floats), len(want[o.Name].Floats))
		}
		for i, w := range want[o.Name].Floats {
			if g := got[o.Name].Floats[i]; !(math.Abs(g-w) <= relative*math.Abs(w)+1e-5) {
				t.Errorf("%s, %s: %s %d is %g, want %g", name, p.Name, o.Name, i, g, w)
			}
		}
	}
	return want
}
