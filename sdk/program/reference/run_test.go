package reference_test

import (
	"math"
	"strings"
	"testing"

	"github.com/cage-qat/cage/internal/testing/golden"
	"github.com/cage-qat/cage/internal/testing/randprog"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/reference"
)

func TestErrors(t *testing.T) {
	bld := program.NewBuilder("errors")
	x := bld.Input("x", program.FloatType(2))
	n := bld.Input("n", program.Type{DType: program.Uint})
	bld.Output("y", x.Mul(n.Convert(program.Float)))
	p, err := bld.Build()
	if err != nil {
		t.Fatal(err)
	}
	good := reference.Floats([]float64{1, 2}, 2)
	bad := reference.Tensor{Type: program.Type{DType: program.Uint}, Ints: []int64{-1}}
	cases := []struct {
		name   string
		inputs map[string]reference.Tensor
		want   string
	}{
		{"missing", map[string]reference.Tensor{"x": good},
			`program "errors": input "n" (uint) is missing`},
		{"unknown", map[string]reference.Tensor{"x": good, "n": reference.Uint(1), "z": good},
			`program "errors" has no input "z"`},
		{"type", map[string]reference.Tensor{"x": reference.Float(1), "n": reference.Uint(1)},
			`program "errors": input "x" is float[2], got float`},
		{"length", map[string]reference.Tensor{"x": reference.Floats([]float64{1}, 2),
			"n": reference.Uint(1)},
			`program "errors": input "x": got 1 floats and 0 integers for float[2], want 2 floats`},
		{"range", map[string]reference.Tensor{"x": good, "n": bad},
			`program "errors": input "n": element 0 is -1, out of range for uint`},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if _, err := reference.Run(p, c.inputs); err == nil || err.Error() != c.want {
				t.Errorf("got %v, want %s", err, c.want)
			}
		})
	}
	if _, err := reference.RunArgs(p, good); err == nil ||
		!strings.Contains(err.Error(), "takes 2 inputs, got 1") {
		t.Errorf("too few arguments: %v", err)
	}
}

func TestOutputsDoNotShareMemory(t *testing.T) {
	bld := program.NewBuilder("alias")
	x := bld.Input("x", program.FloatType(2))
	bld.Output("same", x)
	bld.Output("reshaped", x.Reshape(2, 1))
	p, err := bld.Build()
	if err != nil {
		t.Fatal(err)
	}
	in := reference.Floats([]float64{1, 2}, 2)
	out, err := reference.RunArgs(p, in)
	if err != nil {
		t.Fatal(err)
	}
	out[0].Floats[0] = 99
	if in.Floats[0] != 1 || out[1].Floats[0] != 1 {
		t.Error("writing to one output changed the input or another output")
	}
}

func TestRun32RoundsEveryStep(t *testing.T) {
	bld := program.NewBuilder("single")
	x := bld.Input("x", program.FloatType())
	bld.Output("third", x.Div(bld.Const(3)))
	bld.Output("input", x)
	bld.Output("gone", x.Add(bld.Const(1e-9)).Sub(x))
	p, err := bld.Build()
	if err != nil {
		t.Fatal(err)
	}
	out, err := reference.Run32(p, map[string]reference.Tensor{"x": reference.Float(0.1)})
	if err != nil {
		t.Fatal(err)
	}
	tenth := float32(0.1)
	for name, want := range map[string]float64{"third": float64(tenth / 3), "input": float64(tenth),
		"gone": 0} {
		if got := out[name].Scalar(); got != want {
			t.Errorf("%s = %v, want %v", name, got, want)
		}
	}
}

func TestGoldenHadamard(t *testing.T) {
	golden.Load(t, "testdata/hadamard.json").Run(t, func(t *testing.T, c golden.Case) {
		x := c.Inputs.Array("x")
		rotate := func(v []program.Value) program.Value { return v[0].Hadamard(c.Params.Int("block")) }
		c.Expected.Close("y", evaluate(t, rotate, reference.Floats(x.Data, x.Shape...)).Floats)
		dy := c.Inputs.Array("grad_out")
		c.Expected.Close("grad_in", evaluate(t, rotate, reference.Floats(dy.Data, dy.Shape...)).Floats)
	})
}

// FuzzRun checks that random programs, factorizations included, run without error or panic on
// arbitrary inputs.
func FuzzRun(f *testing.F) {
	f.Add(uint64(1), int64(0), 1.0)
	f.Add(uint64(2), int64(-1), math.Inf(1))
	f.Add(uint64(3), int64(1<<31), math.NaN())
	var all []program.Op
	for _, info := range program.Ops() {
		all = append(all, info.Op)
	}
	f.Fuzz(func(t *testing.T, seed uint64, integer int64, float float64) {
		c := randprog.New(seed%1000, randprog.Options{Ops: all})
		for name, x := range c.Inputs {
			x = x.Clone()
			for i := range x.Floats {
				x.Floats[i] = float
			}
			for i := range x.Ints {
				switch x.Type.DType {
				case program.Int:
					x.Ints[i] = int64(int32(integer))
				case program.Uint:
					x.Ints[i] = int64(uint32(integer))
				default:
					x.Ints[i] = integer & 1
				}
			}
			c.Inputs[name] = x
		}
		if _, err := reference.Run(c.Program, c.Inputs); err != nil {
			t.Fatal(err)
		}
	})
}
