package passes_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/cage-qat/cage/host/compute/passes"
	"github.com/cage-qat/cage/internal/testing/randprog"
	"github.com/cage-qat/cage/internal/testing/testlevel"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/autodiff"
	"github.com/cage-qat/cage/sdk/program/reference"
)

type tensors = map[string]reference.Tensor

func run(t *testing.T, p *program.Program, in tensors) tensors {
	t.Helper()
	out, err := reference.Run(p, in)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// rotate multiplies x by the Hadamard matrix, with the reference implementation.
func rotate(t *testing.T, x reference.Tensor, block int) reference.Tensor {
	t.Helper()
	b := program.NewBuilder("rotation")
	b.Output("y", b.Input("x", x.Type).Hadamard(block))
	p, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	return run(t, p, tensors{"x": x})["y"]
}

// near fails unless two tensors agree, up to rounding in binary64, where they are finite, and are
// not finite at the same places. An infinity may have become NaN.
func near(t *testing.T, what string, got, want reference.Tensor) {
	t.Helper()
	largest := 1.0
	for _, v := range want.Floats {
		if a := math.Abs(v); a > largest && !math.IsInf(v, 0) {
			largest = a
		}
	}
	for i, w := range want.Floats {
		g := got.Floats[i]
		if finite(w) != finite(g) || finite(w) && math.Abs(g-w) > 1e-10*largest {
			t.Fatalf("%s: element %d is %v, want %v", what, i, g, w)
		}
	}
}

func finite(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) }

// rows draws a block size that divides the rows of the first suitable output, and lists all float
// outputs whose rows it divides.
func rows(p *program.Program, rng *rand.Rand) (block int, outputs []string) {
	for _, o := range p.Outputs {
		t := p.TypeOf(o.Value)
		if t.DType != program.Float || t.Rank() == 0 {
			continue
		}
		last := t.Shape[t.Rank()-1]
		if block == 0 && last%2 == 0 {
			for block = 2; last%(2*block) == 0 && rng.IntN(3) > 0; block *= 2 {
			}
		}
		if block > 0 && last%block == 0 {
			outputs = append(outputs, o.Name)
		}
	}
	return block, outputs
}

// check compares a program with the result of UndoRotation, which it returns: the named outputs,
// rotated, all other outputs, and gradients for an adjoint of the rotated value.
func check(
	t *testing.T, p *program.Program, in tensors, block int, outputs []string, rng *rand.Rand,
) *program.Program {
	t.Helper()
	half, err := passes.UndoRotation(p, block, outputs...)
	if err != nil {
		t.Fatal(err)
	}
	if err := half.Validate(program.Limits{}); err != nil {
		t.Fatal(err)
	}
	before, after := run(t, p, in), run(t, half, in)
	for name, want := range before {
		got := after[name]
		if slices.Contains(outputs, name) {
			got = rotate(t, got, block)
		} else if !want.Type.Equal(got.Type) || fmt.Sprint(want) != fmt.Sprint(got) {
			t.Fatalf("output %s changed from %v to %v", name, want, got)
		}
		near(t, name, got, want)
	}
	var wrt []string
	for _, i := range p.Inputs {
		if i.Type.DType == program.Float {
			wrt = append(wrt, i.Name)
		}
	}
	for _, name := range outputs {
		if len(wrt) > 0 {
			checkGradient(t, p, half, in, block, name, wrt, rng)
		}
	}
	return half
}

func checkGradient(
	t *testing.T, p, half *program.Program, in tensors, block int, output string, wrt []string,
	rng *rand.Rand,
) {
	t.Helper()
	id, _ := p.Output(output)
	dz := reference.Floats(make([]float64, p.TypeOf(id).Size()), p.TypeOf(id).Shape...)
	for i := range dz.Floats {
		dz.Floats[i] = rng.NormFloat64()
	}
	gradient := func(p *program.Program, dy reference.Tensor) tensors {
		d, err := autodiff.VJP(p, output, wrt...)
		if err != nil {
			t.Fatal(err)
		}
		with := tensors{autodiff.Prefix + output: dy}
		for k, v := range in {
			with[k] = v
		}
		return run(t, d, with)
	}
	want, got := gradient(p, rotate(t, dz, block)), gradient(half, dz)
	for name := range want {
		near(t, output+", gradient "+name, got[name], want[name])
	}
}

// TestRandom checks that UndoRotation rotates the outputs of random programs.
func TestRandom(t *testing.T) {
	seeds, checked := testlevel.Choose[uint64](150, 400), 0
	for seed := range seeds {
		c := randprog.New(seed, randprog.Options{Smooth: seed%2 == 0})
		rng := rand.New(rand.NewPCG(seed, 1))
		block, outputs := rows(c.Program, rng)
		if len(outputs) == 0 {
			continue
		}
		checked++
		t.Run(fmt.Sprint(seed), func(t *testing.T) { check(t, c.Program, c.Inputs, block, outputs, rng) })
	}
	if checked < int(seeds/2) {
		t.Errorf("only %d of %d programs have an output to rotate", checked, seeds)
	}
}

// tail applies random operations to v that commute with a rotation.
func tail(
	b *program.Builder, rng *rand.Rand, v, row program.Value, block, depth int,
) program.Value {
	shape := v.Shape()
	for range depth {
		switch rng.IntN(8) {
		case 0:
			v = v.Mul(row)
		case 1:
			v = row.Square().Shift(1).Mul(v)
		case 2:
			v = v.Div(row.Square().Shift(1))
		case 3:
			v = v.Scale(rng.NormFloat64()).Neg()
		case 4:
			v = row.Lt(b.Const(0.5)).Select(v, b.Const(0))
		case 5:
			blocks := int(v.Type().Size()) / block
			v = v.Reshape(blocks, block).Mul(b.Table(normal(rng, int64(blocks)), blocks, 1)).
				Reshape(shape...)
		case 6:
			v = v.Ldexp(row.Round())
		default:
			v = v.Sub(tail(b, rng, b.Table(normal(rng, v.Type().Size()), shape...).Hadamard(block), row,
				block, depth/2))
		}
	}
	return v
}

func normal(rng *rand.Rand, n int64) []float64 {
	data := make([]float64, n)
	for i := range data {
		data[i] = rng.NormFloat64()
	}
	return data
}

// TestRandomTails checks that a rotation at the end of a program, followed by random operations
// that commute with it, is found and removed.
func TestRandomTails(t *testing.T) {
	for seed := range testlevel.Choose[uint64](120, 300) {
		rng := rand.New(rand.NewPCG(seed, 2))
		block := 2 << rng.IntN(4)
		shape := []int{1 + rng.IntN(4), block * (1 + rng.IntN(3))}
		b := program.NewBuilder("tail")
		x, row := b.Input("x", program.FloatType(shape...)),
			b.Input("row", program.FloatType(shape[0], 1))
		z := x.Hadamard(block)
		mask := z.Abs().Le(b.Const(1.5))
		b.Output("value", tail(b, rng, z.Scale(4).Round().Hadamard(block), row, block, 1+rng.IntN(5)))
		b.Output("surrogate", tail(b, rng, mask.Select(z, b.Const(0)).Hadamard(block), row, block,
			rng.IntN(5)))
		b.Output("mask", mask)
		p, err := b.Build()
		if err != nil {
			t.Fatal(err)
		}
		in := tensors{"x": reference.Floats(normal(rng, x.Type().Size()), shape...),
			"row": reference.Floats(normal(rng, int64(shape[0])), shape[0], 1)}
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			if got := passes.EndingRotation(p, "value"); got != block {
				t.Fatalf("ends in a rotation of %d, want %d:\n%s", got, block, p)
			}
			half := check(t, p, in, block, []string{"value", "surrogate"}, rng)
			if got, want := passes.RotatedElements(half), x.Type().Size(); got != want {
				t.Errorf("%d elements are rotated, want %d, those of x:\n%s", got, want, half)
			}
			again, err := passes.UndoRotation(half, block, "value", "surrogate")
			if err != nil {
				t.Fatal(err)
			}
			near(t, "undone twice", run(t, again, in)["value"], run(t, p, in)["value"])
		})
	}
}

// TestReceive checks that the result of ReceiveRotated, given the rotated input, returns the
// outputs of the program, and omits the rotations of the input in the program.
func TestReceive(t *testing.T) {
	const block = 8
	rng := rand.New(rand.NewPCG(5, 6))
	b := program.NewBuilder("backward")
	x, dy := b.Input("x", program.FloatType(3, 16)), b.Input("d.value", program.FloatType(3, 16))
	dz := dy.Hadamard(block)
	b.Output("d.x", dz.Sign().Mul(x).Shift(1).Mul(dz).Hadamard(block))
	b.Output("d.trained.s", x.Abs().Mul(dz).SumAll())
	rotates, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	b = program.NewBuilder("backward")
	x, dy = b.Input("x", program.FloatType(3, 16)), b.Input("d.value", program.FloatType(3, 16))
	b.Output("d.x", dy.Abs().Mul(x))
	plain, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	for p, elements := range map[*program.Program]int64{rotates: 48, plain: 48} {
		half, err := passes.ReceiveRotated(p, block, "d.value")
		if err != nil {
			t.Fatal(err)
		}
		if got := passes.RotatedElements(half); got != elements {
			t.Errorf("%d elements are rotated, want %d:\n%s", got, elements, half)
		}
		in := tensors{"x": reference.Floats(normal(rng, 48), 3, 16),
			"d.value": reference.Floats(normal(rng, 48), 3, 16)}
		want := run(t, p, in)
		in["d.value"] = rotate(t, in["d.value"], block)
		for name, got := range run(t, half, in) {
			near(t, name, got, want[name])
		}
	}
	for says, receive := range map[string]func() (*program.Program, error){
		`no input "dy"`: func() (*program.Program, error) {
			return passes.ReceiveRotated(plain, block, "dy")
		},
		"with a row length that is a multiple of 32": func() (*program.Program, error) {
			return passes.ReceiveRotated(plain, 32, "d.value")
		},
	} {
		if _, err := receive(); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("got %v, want %q", err, says)
		}
	}
}
