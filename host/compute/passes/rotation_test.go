package passes_test

import (
	"math"
	"strings"
	"testing"

	"github.com/cage-qat/cage/host/compute/passes"
	"github.com/cage-qat/cage/sdk/program"
)

// build returns a program with output value of x, float[2,8], and row factors, float[2,1].
func build(
	t *testing.T, body func(b *program.Builder, x, row program.Value) program.Value,
) *program.Program {
	t.Helper()
	b := program.NewBuilder("test")
	x, row := b.Input("x", program.FloatType(2, 8)), b.Input("row", program.FloatType(2, 1))
	b.Output("value", body(b, x, row))
	p, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestEnding checks which operations commute with a rotation.
func TestEnding(t *testing.T) {
	type body = func(b *program.Builder, x, row program.Value) program.Value
	round := func(x program.Value) program.Value { return x.Hadamard(4).Round().Hadamard(4) }
	for name, c := range map[string]struct {
		want int
		body body
	}{
		"plain": {4,
			func(_ *program.Builder, x, _ program.Value) program.Value { return round(x) }},
		"the whole row": {8,
			func(_ *program.Builder, x, _ program.Value) program.Value { return x.Round().Hadamard(8) }},
		"a factor": {4,
			func(_ *program.Builder, x, row program.Value) program.Value { return round(x).Mul(row) }},
		"a factor, first": {4,
			func(_ *program.Builder, x, row program.Value) program.Value { return row.Mul(round(x)) }},
		"a number": {4,
			func(_ *program.Builder, x, _ program.Value) program.Value { return round(x).Scale(3).Neg() }},
		"a quotient": {4,
			func(_ *program.Builder, x, row program.Value) program.Value { return round(x).Div(row) }},
		"a power of two": {4,
			func(_ *program.Builder, x, row program.Value) program.Value {
				return round(x).Ldexp(row.Round())
			}},
		"a filled factor": {4,
			func(b *program.Builder, x, _ program.Value) program.Value {
				return round(x).Mul(b.Full(2, 2, 8))
			}},
		"a repeated factor": {4, func(_ *program.Builder, x, row program.Value) program.Value {
			return round(x).Mul(row.Broadcast([]int{2, 8}, []int{0, 1}))
		}},
		"reshapes": {4, func(_ *program.Builder, x, _ program.Value) program.Value {
			return round(x.Reshape(4, 4)).Reshape(2, 8)
		}},
		"blocks with a factor": {4, func(_ *program.Builder, x, _ program.Value) program.Value {
			v := x.Reshape(2, 2, 4).Hadamard(4).Round()
			return v.Hadamard(4).Mul(v.Abs().MaxRow()).Reshape(2, 8)
		}},
		"NaN for bad rows": {4, func(b *program.Builder, x, row program.Value) program.Value {
			return row.IsFinite().Select(round(x), b.Const(math.NaN()))
		}},
		"one of two": {4, func(_ *program.Builder, x, row program.Value) program.Value {
			return row.IsFinite().Select(round(x), x.Hadamard(4))
		}},
		"a sum": {4, func(_ *program.Builder, x, _ program.Value) program.Value {
			return round(x).Add(x.Hadamard(4)).StopGradient()
		}},
		"no rotation": {0, func(_ *program.Builder, x, _ program.Value) program.Value {
			return x.Round()
		}},
		"only before": {0, func(_ *program.Builder, x, _ program.Value) program.Value {
			return x.Hadamard(4).Round()
		}},
		"block of one": {0, func(_ *program.Builder, x, _ program.Value) program.Value {
			return x.Hadamard(1)
		}},
		"a factor for each element": {0, func(b *program.Builder, x, _ program.Value) program.Value {
			return round(x).Mul(b.Table([]float64{1, 2, 3, 4, 5, 6, 7, 8}, 1, 8))
		}},
		"a divided constant": {0,
			func(b *program.Builder, x, _ program.Value) program.Value { return b.Const(1).Div(round(x)) }},
		"a shift": {0,
			func(_ *program.Builder, x, _ program.Value) program.Value { return round(x).Shift(1) }},
		"half a sum": {0,
			func(_ *program.Builder, x, _ program.Value) program.Value { return round(x).Add(x) }},
		"two rotations": {0,
			func(_ *program.Builder, x, _ program.Value) program.Value {
				return round(x).Add(x.Hadamard(8))
			}},
		"split runs": {0, func(_ *program.Builder, x, _ program.Value) program.Value {
			return round(x).Reshape(8, 2).Neg().Reshape(2, 8).Transpose(1, 0).Reshape(2, 8)
		}},
		"ones for bad rows": {0, func(b *program.Builder, x, row program.Value) program.Value {
			return row.IsFinite().Select(round(x), b.Const(1))
		}},
		"a mask after": {0, func(b *program.Builder, x, _ program.Value) program.Value {
			return x.IsFinite().Select(round(x), b.Const(0))
		}},
		"padding": {0, func(b *program.Builder, x, _ program.Value) program.Value {
			return x.Concatenate(1, b.Zeros(2, 8)).Hadamard(16).Round().Hadamard(16).
				Slice([]int{0, 0}, []int{2, 8}, []int{1, 1})
		}},
	} {
		p := build(t, c.body)
		if got := passes.EndingRotation(p, "value"); got != c.want {
			t.Errorf("%s: ends in a rotation of %d, want %d:\n%s", name, got, c.want, p)
		}
		if c.want == 0 {
			continue
		}
		half, err := passes.UndoRotation(p, c.want, "value")
		if err != nil {
			t.Fatal(err)
		}
		if before, after := passes.RotatedElements(p), passes.RotatedElements(half); after >= before {
			t.Errorf("%s: %d elements are rotated, %d before:\n%s", name, after, before, half)
		}
	}
	if got := passes.EndingRotation(
		build(t, func(_ *program.Builder, x, _ program.Value) program.Value { return x }),
		"other"); got != 0 {
		t.Errorf("an output that does not exist ends in a rotation of %d", got)
	}
}

// TestElements counts the elements of two rotations of 16 each, before and after one is removed.
func TestElements(t *testing.T) {
	p := build(t, func(_ *program.Builder, x, _ program.Value) program.Value {
		return x.Hadamard(4).Round().Hadamard(4)
	})
	half, err := passes.UndoRotation(p, 4, "value")
	if err != nil {
		t.Fatal(err)
	}
	if before, after := passes.RotatedElements(p), passes.RotatedElements(half); before != 32 ||
		after != 16 {
		t.Errorf("%d and %d elements, want 32 and 16", before, after)
	}
}

// TestUndoRefuses checks that outputs without whole blocks of floats are refused.
func TestUndoRefuses(t *testing.T) {
	b := program.NewBuilder("test")
	x := b.Input("x", program.FloatType(2, 8))
	b.Output("value", x)
	b.Output("sum", x.SumAll())
	b.Output("codes", x.Convert(program.Int))
	p, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		block  int
		output string
		say    string
	}{
		{4, "other", `has no output "other"`},
		{16, "value", "with a row length that is a multiple of 16"},
		{0, "value", "with a row length that is a multiple of 0"},
		{4, "sum", "a row length that is a multiple"},
		{4, "codes", "a row length that is a multiple"},
	} {
		if _, err := passes.UndoRotation(p, c.block, c.output); err == nil ||
			!strings.Contains(err.Error(), c.say) {
			t.Errorf("%d, %s: got %v, want an error that says %q", c.block, c.output, err, c.say)
		}
	}
}
