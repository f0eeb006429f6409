package plan_test

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/cage-qat/cage/host/compute/matmul"
	"github.com/cage-qat/cage/host/compute/passes"
	"github.com/cage-qat/cage/host/compute/plan"
	"github.com/cage-qat/cage/internal/halffloat"
	"github.com/cage-qat/cage/internal/testing/randprog"
	"github.com/cage-qat/cage/internal/testing/testlevel"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/reference"
)

// TestStorage computes random programs with inputs and outputs in all storages. An output with the
// type and storage of an input has its memory.
func TestStorage(t *testing.T) {
	for seed := range testlevel.Sample[uint64](30, 200, 1000) {
		options := randprog.Options{Nodes: 5 + int(seed%21), Elements: []int{40, 256, 3000}[seed%3]}
		c := randprog.New(seed, options)
		random := rand.New(rand.NewPCG(seed, 1))
		o := plan.Options{Arithmetic: matmul.Float32, Inputs: map[string]passes.Storage{},
			Outputs: map[string]passes.Storage{}, Replaces: map[string]string{}}
		var in, out []any
		given := maps.Clone(c.Inputs) // as stored
		for _, input := range c.Program.Inputs {
			memory := slice(c.Inputs[input.Name])
			if floats, ok := memory.([]float32); ok {
				at := []passes.Storage{"", passes.BFloat16, passes.Float16, passes.Int8,
					passes.Uint8}[random.IntN(5)]
				o.Inputs[input.Name] = at
				memory = stored(floats, at)
				given[input.Name] = tensor(loaded(memory, at), input.Type)
			}
			in = append(in, memory)
		}
		free := maps.Clone(c.Inputs)
		for _, output := range c.Program.Outputs {
			shape := c.Program.TypeOf(output.Value)
			memory := slice(reference.Tensor{Type: shape})
			if floats, ok := memory.([]float32); ok {
				at := []passes.Storage{"", passes.BFloat16, passes.Float16}[random.IntN(3)]
				o.Outputs[output.Name] = at
				memory = stored(floats, at)
				for i, input := range c.Program.Inputs {
					if _, ok := free[input.Name]; ok && input.Type.Equal(shape) &&
						o.Inputs[input.Name] == at {
						o.Replaces[output.Name], memory = input.Name, in[i]
						delete(free, input.Name)
						break
					}
				}
			}
			out = append(out, memory)
		}
		want, err := reference.Run(c.Program, given)
		if err != nil {
			t.Fatal(err)
		}
		p, err := plan.Compile(c.Program, o)
		if err == nil {
			err = p.Run(in, out, inTurn)
		}
		if err != nil {
			t.Fatalf("seed %d: %v\n%s", seed, err, c.Program)
		}
		for i, output := range c.Program.Outputs {
			at, w := o.Outputs[output.Name], want[output.Name]
			got := out[i]
			if at != "" {
				got = loaded(got, at)
				w = tensor(loaded(stored(slice(w).([]float32), at), at), w.Type)
			}
			if err := compareStored(got, w, at); err != nil {
				t.Errorf("seed %d: output %s, stored as %q: %v\n%s", seed, output.Name, at, err, c.Program)
			}
		}
	}
}

// compareStored is compare, but values near a limit between two stored numbers may be either.
func compareStored(got any, want reference.Tensor, at passes.Storage) error {
	if at == "" {
		return compare(got, want)
	}
	floats := got.([]float32)
	for i, w := range want.Floats {
		if near := math.Abs(w)/128 + 1e-3; math.Abs(float64(floats[i])-w) <= near {
			floats[i] = float32(w)
		}
	}
	return compare(floats, want)
}

func stored(floats []float32, at passes.Storage) any {
	integer := func(v float32, low, high float64) float64 {
		return min(max(math.RoundToEven(float64(v)), low), high)
	}
	switch at {
	case passes.BFloat16:
		return convert(floats, halffloat.ToBFloat16)
	case passes.Float16:
		return convert(floats, halffloat.ToHalf)
	case passes.Int8:
		return convert(floats, func(v float32) int8 { return int8(integer(v, -127, 127)) })
	case passes.Uint8:
		return convert(floats, func(v float32) uint8 { return uint8(integer(v, 0, 255)) })
	}
	return floats
}

func loaded(memory any, at passes.Storage) []float32 {
	switch m := memory.(type) {
	case []uint16:
		if at == passes.BFloat16 {
			return convert(m, func(v uint16) float32 { return math.Float32frombits(uint32(v) << 16) })
		}
		return convert(m, halffloat.FromHalf)
	case []int8:
		return convert(m, func(v int8) float32 { return float32(v) })
	case []uint8:
		return convert(m, func(v uint8) float32 { return float32(v) })
	}
	return memory.([]float32)
}

// TestNewStateInProducts checks that a product of an output that is stored in bfloat16 reads the
// value before it is rounded, and that the state's memory may be the old state's.
func TestNewStateInProducts(t *testing.T) {
	p := build(t, func(b *program.Builder) {
		state := b.Input("state", program.FloatType(2, 2)).Shift(1.0 / 1024)
		b.Output("state", state)
		b.Output("product", state.MatMul(state))
	})
	half := map[string]passes.Storage{"state": passes.BFloat16}
	compiled, err := plan.Compile(p, plan.Options{Arithmetic: matmul.Float32, Inputs: half,
		Outputs: half})
	if err != nil {
		t.Fatal(err)
	}
	state := stored([]float32{1, 0, 0, 1}, passes.BFloat16)
	product := make([]float32, 4)
	if err := compiled.Run([]any{state}, []any{state, product}, inTurn); err != nil {
		t.Fatal(err)
	}
	const e = 1.0 / 1024
	want := fmt.Sprint([]float32{1, e, e, 1}, []float32{(1+e)*(1+e) + e*e, 2 * e * (1 + e),
		2 * e * (1 + e), (1+e)*(1+e) + e*e})
	if got := fmt.Sprint(loaded(state, passes.BFloat16), product); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// TestUpdatesSideBySide checks updates of several tensors that share a number computed from all of
// them, some in place and one in another's memory.
func TestUpdatesSideBySide(t *testing.T) {
	const n = 100
	p := build(t, func(b *program.Builder) {
		var list []program.Value
		for i := range 3 {
			list = append(list, b.Input(fmt.Sprint("x", i), program.FloatType(n)))
		}
		sum := b.Const(0)
		for _, x := range list {
			sum = sum.Add(x.Square().ReduceSum(0).Reshape())
		}
		factor := sum.Sqrt()
		for i, x := range list {
			b.Output(fmt.Sprint("x", i), x.Div(factor))
		}
	})
	compiled, err := plan.Compile(p, plan.Options{Arithmetic: matmul.Float32,
		Replaces: map[string]string{"x0": "x1", "x1": "x0"}})
	if err != nil {
		t.Fatal(err)
	}
	var x [3][]float32
	for i := range x {
		for j := range n {
			x[i] = append(x[i], float32((i+1)*(j+1)))
		}
	}
	norm := 0.0
	for _, list := range x {
		for _, v := range list {
			norm += float64(v) * float64(v)
		}
	}
	norm = math.Sqrt(norm)
	in, out := []any{x[0], x[1], x[2]}, []any{x[1], x[0], x[2]}
	if err := compiled.Run(in, out, inTurn); err != nil {
		t.Fatal(err)
	}
	for i := range x {
		for j, got := range out[i].([]float32) {
			if want := float64((i+1)*(j+1)) / norm; !(math.Abs(float64(got)-want) <= 1e-6*want) {
				t.Fatalf("tensor %d, element %d: got %v, want %v", i, j, got, want)
			}
		}
	}
}
