package refresh_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/cage-qat/cage/host/compute/refresh"
	"github.com/cage-qat/cage/host/testing/testrun"
	"github.com/cage-qat/cage/internal/testing/randprog"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/reference"
)

type tensors = map[string]reference.Tensor

// both runs a program with Execute and with the reference implementation.
func both(t *testing.T, p *program.Program, in tensors) (got, want tensors) {
	t.Helper()
	got, err := refresh.Execute(p, in)
	if err != nil {
		t.Fatal(err)
	}
	if want, err = reference.Run(p, in); err != nil {
		t.Fatal(err)
	}
	return got, want
}

// near fails unless two tensors agree up to the tolerance, and are NaN at the same places.
func near(t *testing.T, what string, got, want reference.Tensor, tolerance float64) {
	t.Helper()
	if !got.Type.Equal(want.Type) || got.Len() != want.Len() {
		t.Fatalf("%s is %s with %d elements, want %s with %d", what, got.Type, got.Len(), want.Type,
			want.Len())
	}
	for i, w := range want.Float64s() {
		g := got.Float64s()[i]
		if math.Float64bits(g) != math.Float64bits(w) && !(g != g && w != w) &&
			!(math.Abs(g-w) <= tolerance) {
			t.Fatalf("%s: element %d is %v, want %v", what, i, g, w)
		}
	}
}

func build(t *testing.T, body func(b *program.Builder)) *program.Program {
	t.Helper()
	b := program.NewBuilder("test")
	body(b)
	p, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func normal(shape ...int) reference.Tensor {
	rng, data := rand.New(rand.NewPCG(1, 2)), make([]float64, program.FloatType(shape...).Size())
	for i := range data {
		data[i] = rng.NormFloat64()
	}
	return reference.Floats(data, shape...)
}

// matrices multiplies the matrices of the last two axes.
func matrices(x, y program.Value) program.Value {
	return x.Dot(y, [2][]int{{2}, {1}}, [2][]int{{0}, {0}})
}

// plain returns the operations that give the bits of the reference implementation.
func plain() (ops []program.Op) {
	for _, info := range program.Ops() {
		switch info.Op {
		case program.OpDot, program.OpQR, program.OpEighValues, program.OpEighVectors:
		default:
			ops = append(ops, info.Op)
		}
	}
	return ops
}

// TestOperations checks, twice, that all operations but products and factorizations give the bits
// of the reference implementation.
func TestOperations(t *testing.T) {
	for range 2 {
		for seed := range uint64(200) {
			c := randprog.New(seed, randprog.Options{Ops: plain()})
			got, want := both(t, c.Program, c.Inputs)
			for name, w := range want {
				near(t, name, got[name], w, 0)
			}
		}
	}
}

// TestProducts checks that products are computed in binary32: of axes that are not those of strided
// matrices, of a tensor with itself, and of adjacent columns.
func TestProducts(t *testing.T) {
	p := build(t, func(b *program.Builder) {
		x := b.Input("x", program.FloatType(4, 20, 20))
		b.Output("product", matrices(x, x))
		b.Output("square", x.Dot(x, [2][]int{{2}, {2}}, [2][]int{{0}, {0}}))
		b.Output("columns", x.Dot(x, [2][]int{{0}, {0}}, [2][]int{{1, 2}, {1, 2}}))
		b.Output("scattered", x.Dot(x, [2][]int{{2, 0}, {1, 0}}, [2][]int{{}, {}}))
		b.Output("sum", x.Shift(1e-12))
	})
	got, want := both(t, p, tensors{"x": normal(4, 20, 20)})
	for name, w := range want {
		near(t, name, got[name], w, 100*20*0x1p-24)
	}
	near(t, "sum", got["sum"], want["sum"], 0)
	if got["product"].Floats[0] == want["product"].Floats[0] {
		t.Error("the product was computed in binary64")
	}
}

// TestEigh checks eigenvalues and eigenvectors of the same matrices, and each alone. A NaN in a
// matrix must not affect the results of others.
func TestEigh(t *testing.T) {
	const count, n = 3, 40
	x := normal(count, n, n)
	x.Floats[n*n] = math.NaN() // in the second matrix
	p := build(t, func(b *program.Builder) {
		x := b.Input("x", x.Type)
		s := x.Add(x.Transpose(0, 2, 1))
		b.Output("s", s)
		b.Output("values", s.EighValues())
		b.Output("vectors", s.EighVectors())
		b.Output("only_values", x.EighValues())
		b.Output("only_vectors", s.Neg().EighVectors())
	})
	got, want := both(t, p, tensors{"x": x})
	near(t, "values", got["values"], want["values"], 1e-12)
	near(t, "only_values", got["only_values"], want["only_values"], 1e-12)
	check := build(t, func(b *program.Builder) { // V·diag(w)·Vᵀ
		v, w := b.Input("v", x.Type), b.Input("w", program.FloatType(count, n))
		b.Output("s", matrices(v.Mul(w.Reshape(count, 1, n)), v.Transpose(0, 2, 1)))
	})
	negative := reference.Floats(slices.Clone(got["values"].Floats), count, n)
	for i := range count {
		of := negative.Floats[i*n:][:n]
		slices.Reverse(of)
	}
	for vectors, values := range map[string]reference.Tensor{"vectors": got["values"],
		"only_vectors": negative} {
		out, err := reference.Run(check, tensors{"v": got[vectors], "w": values})
		if err != nil {
			t.Fatal(err)
		}
		for _, i := range []int{0, 2} {
			near(t, vectors, reference.Floats(out["s"].Floats[i*n*n:][:n*n], n, n),
				reference.Floats(got["s"].Floats[i*n*n:][:n*n], n, n), 1e-12)
		}
		for _, v := range got[vectors].Floats[n*n : 2*n*n] {
			if v == v {
				t.Fatalf("%s of a matrix with a NaN has the element %v", vectors, v)
			}
		}
	}
}

// TestQR checks that QR gives the signs of the reference implementation, in binary32.
func TestQR(t *testing.T) {
	x := normal(3, 40, 25)
	x.Floats[1000] = math.Inf(1) // in the second matrix
	p := build(t, func(b *program.Builder) { b.Output("q", b.Input("x", x.Type).QR()) })
	got, want := both(t, p, tensors{"x": x})
	near(t, "Q", got["q"], want["q"], 1e-5)
	if got["q"].Floats[0] == want["q"].Floats[0] {
		t.Error("QR was computed in binary64")
	}
}

// TestResultsStay checks that results and inputs keep their values in later runs, also when values
// share memory or are results twice.
func TestResultsStay(t *testing.T) {
	p := build(t, func(b *program.Builder) {
		x := b.Input("x", program.FloatType(2, 3))
		y := x.Add(x)
		b.Output("x", x)
		b.Output("y", y)
		b.Output("again", y)
		b.Output("flat", y.Reshape(6))
		b.Output("chosen", x.SumAll().Gt(b.Const(0)).Select(y, x))
		b.Output("last", y.Mul(y).Sub(y).Mul(y))
	})
	var results []tensors
	in := tensors{"x": normal(2, 3)}
	want, err := reference.Run(p, in)
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		out, err := refresh.Execute(p, in)
		if err != nil {
			t.Fatal(err)
		}
		results = append(results, out)
	}
	for _, got := range results {
		for name, w := range want {
			near(t, name, got[name], w, 0)
		}
	}
}

func TestErrors(t *testing.T) {
	p := build(t, func(b *program.Builder) { b.Output("y", b.Input("x", program.FloatType(2)).Neg()) })
	for _, in := range []tensors{{}, {"x": reference.Float(1)}} {
		if _, err := refresh.Execute(p, in); err == nil ||
			!strings.Contains(err.Error(), `input "x" must be float[2]`) {
			t.Errorf("got %v, want an error that names x", err)
		}
	}
}

func TestMain(m *testing.M) { testrun.Main(m) }
