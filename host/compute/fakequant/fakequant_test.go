package fakequant_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/cage-qat/cage/host/compute/fakequant"
	"github.com/cage-qat/cage/host/compute/matmul"
	"github.com/cage-qat/cage/internal/lists"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/reference"
	"github.com/cage-qat/cage/sdk/spec"
)

// rounding returns a quantizer of rows to integers from −8 to 7 times a scale of the row. With a
// block, the rows are rotated before, and back.
func rounding(t *testing.T, rows, columns, block int) *fakequant.Quantizer {
	t.Helper()
	b := program.NewBuilder("rounding")
	x := b.Input(spec.InputX, program.FloatType(rows, columns))
	z := x
	if block > 0 {
		z = z.Hadamard(block)
	}
	scale := z.Abs().MaxRow().Scale(1.0 / 8)
	z = z.Div(scale).Clip(-8, 7).Round().Mul(scale)
	if block > 0 {
		z = z.Hadamard(block)
	}
	b.Output(spec.OutputValue, z)
	b.Output(spec.OutputSurrogate, x)
	p, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	q, err := fakequant.New(spec.Quantizer{Program: p})
	if err != nil {
		t.Fatal(err)
	}
	return q
}

// evaluate computes what write writes from a matrix of random numbers, on the reference
// implementation.
func evaluate(t *testing.T, rows, columns int,
	write func(x program.Value) map[string]program.Value) map[string][]float64 {
	t.Helper()
	b := program.NewSimplifier("test")
	for name, v := range write(b.Input("x", program.FloatType(rows, columns))) {
		b.Output(name, v)
	}
	p, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(1, 2))
	x := lists.Make(rows*columns, func(int) float64 { return rng.NormFloat64() })
	out, err := reference.Run(p, map[string]reference.Tensor{"x": reference.Floats(x, rows, columns)})
	if err != nil {
		t.Fatal(err)
	}
	all := map[string][]float64{}
	for name, v := range out {
		all[name] = v.Float64s()
	}
	return all
}

// TestCodes checks that the codes times their scales are Q(x).
func TestCodes(t *testing.T) {
	const rows, columns = 5, 12
	q := rounding(t, rows, columns, 0)
	if shapes := q.CodeShapes(); len(shapes) != 2 || shapes[1].Size() != rows {
		t.Fatalf("got the shapes %v of codes", shapes)
	}
	out := evaluate(t, rows, columns, func(x program.Value) map[string]program.Value {
		value, _, codes := q.Forward(x, nil, true)
		return map[string]program.Value{"value": value, "integers": codes[0], "scale": codes[1]}
	})
	for i, want := range out["value"] {
		integer := out["integers"][i]
		if got := integer * out["scale"][i/columns]; integer != math.Round(integer) || got != want {
			t.Fatalf("element %d is %g, its code times its scale %g", i, want, got)
		}
	}
}

// TestLongCodes checks that there are no codes if sums of their products may exceed 32 bits.
func TestLongCodes(t *testing.T) {
	for columns, want := range map[int]bool{matmul.MaxCodes: true, matmul.MaxCodes + 1: false} {
		if ok := rounding(t, 1, columns, 0).CodeShapes() != nil; ok != want {
			t.Errorf("there are codes of %d columns: %t", columns, ok)
		}
	}
}

// TestKeepRotated checks that values that stay rotated are Q(x) if they are rotated back.
func TestKeepRotated(t *testing.T) {
	const rows, columns, block = 3, 16, 8
	q := rounding(t, rows, columns, block)
	kept, err := q.KeepRotated()
	if err != nil {
		t.Fatal(err)
	}
	// The forward pass rotates once less, the backward pass, which passed gradients on, once more.
	if kept == nil || kept.Block != block || kept.Saved != 0 {
		t.Fatalf("got %+v, want a rotation of %d elements", kept, block)
	}
	out := evaluate(t, rows, columns, func(x program.Value) map[string]program.Value {
		value, _, _ := q.Forward(x, nil, false)
		rotated, _, _ := kept.Quantizer.Forward(x, nil, false)
		return map[string]program.Value{"value": value, "rotated": rotated,
			"back": rotated.Hadamard(block)}
	})
	moved := 0.0
	for i, want := range out["value"] {
		if got := out["back"][i]; math.Abs(got-want) > 1e-12 {
			t.Errorf("element %d is %g, want %g", i, got, want)
		}
		moved = max(moved, math.Abs(out["rotated"][i]-want))
	}
	if moved < 0.1 {
		t.Error("values do not stay rotated")
	}
}
