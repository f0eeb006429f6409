package reference_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/reference"
)

// matrices multiplies the matrices on the last two axes.
func matrices(x, y program.Value) program.Value {
	return x.Dot(y, [2][]int{{2}, {1}}, [2][]int{{0}, {0}})
}

func near(t *testing.T, what string, got, want reference.Tensor, tolerance float64) {
	t.Helper()
	if !got.Type.Equal(want.Type) {
		t.Fatalf("%s is %s, want %s", what, got.Type, want.Type)
	}
	for i, v := range want.Floats {
		if !(math.Abs(got.Floats[i]-v) <= tolerance) {
			t.Fatalf("%s: element %d is %v, want %v", what, i, got.Floats[i], v)
		}
	}
}

func identities(count, n int) reference.Tensor {
	data := make([]float64, count*n*n)
	for i := range count * n {
		data[i*n+i%n] = 1
	}
	return reference.Floats(data, count, n, n)
}

func TestQR(t *testing.T) {
	const count, rows, cols = 3, 40, 25 // several blocks of LAPACK
	a := normal(rand.New(rand.NewPCG(1, 1)), count, rows, cols)
	gram := evaluate(t, func(v []program.Value) program.Value {
		q := v[0].QR()
		return matrices(q.Transpose(0, 2, 1), q)
	}, a)
	near(t, "QᵀQ", gram, identities(count, cols), 1e-13)
	// R = QᵀA is upper triangular and Q·R = A, so the first k columns of Q and A span the same space.
	r := evaluate(t, func(v []program.Value) program.Value {
		return matrices(v[0].QR().Transpose(0, 2, 1), v[0])
	}, a)
	for i, v := range r.Floats {
		if row, col := i/cols%cols, i%cols; row > col && math.Abs(v) > 1e-13 {
			t.Fatalf("R[%d][%d] = %v", row, col, v)
		}
	}
	back := evaluate(t, func(v []program.Value) program.Value {
		q := v[0].QR()
		return matrices(q, matrices(q.Transpose(0, 2, 1), v[0]))
	}, a)
	near(t, "Q·R", back, a, 1e-13)
}

// TestQRSigns checks the signs that LAPACK's Householder vectors give: if the first element of A is
// positive, the first columns of Q and A are opposite. Refresh programs always get these signs.
func TestQRSigns(t *testing.T) {
	got := evaluate(t, func(v []program.Value) program.Value { return v[0].QR() },
		reference.Floats([]float64{3, 0, 4, 5}, 2, 2))
	near(t, "Q", got, reference.Floats([]float64{-0.6, -0.8, -0.8, 0.6}, 2, 2), 1e-15)
}

func TestEigh(t *testing.T) {
	const count, n = 3, 40
	half := normal(rand.New(rand.NewPCG(2, 2)), count, n, n)
	symmetric := evaluate(t,
		func(v []program.Value) program.Value { return v[0].Add(v[0].Transpose(0, 2, 1)) }, half)
	values := evaluate(t, func(v []program.Value) program.Value { return v[0].EighValues() },
		symmetric)
	for i, v := range values.Floats {
		if i%n > 0 && v < values.Floats[i-1] {
			t.Fatalf("eigenvalue %d is %v after %v", i, v, values.Floats[i-1])
		}
	}
	both := func(v []program.Value) program.Value { // V·diag(w)·Vᵀ
		vectors, values := v[0].EighVectors(), v[0].EighValues()
		return matrices(vectors.Mul(values.Reshape(count, 1, n)), vectors.Transpose(0, 2, 1))
	}
	near(t, "V·diag(w)·Vᵀ", evaluate(t, both, symmetric), symmetric, 1e-12)
	gram := evaluate(t, func(v []program.Value) program.Value {
		return matrices(v[0].EighVectors().Transpose(0, 2, 1), v[0].EighVectors())
	}, symmetric)
	near(t, "VᵀV", gram, identities(count, n), 1e-12)
}

func TestEighReadsTheLowerTriangle(t *testing.T) {
	full := reference.Floats([]float64{2, 1, 1, 2}, 2, 2)
	junk := reference.Floats([]float64{2, nan, 1, 2}, 2, 2)
	values := func(v []program.Value) program.Value { return v[0].EighValues() }
	near(t, "eigenvalues", evaluate(t, values, full), f(1, 3), 1e-15)
	near(t, "eigenvalues beside an unread NaN", evaluate(t, values, junk), f(1, 3), 1e-15)
}

func TestFactorizationsOfNonFiniteMatrices(t *testing.T) {
	a := identities(2, 3) // only the second matrix has an infinite element
	a.Floats[9] = inf
	for _, op := range []program.Op{program.OpQR, program.OpEighValues, program.OpEighVectors} {
		got := apply(t, op, program.Attr{}, program.Type{}, a)
		for i, v := range got.Floats {
			if spoilt := i >= len(got.Floats)/2; math.IsNaN(v) != spoilt {
				t.Errorf("%s: element %d is %v", op, i, v)
			}
		}
	}
}

func TestSortColumns(t *testing.T) {
	sorted := func(v []program.Value) program.Value { return v[0].SortColumns(v[1]) }
	x := reference.Floats([]float64{1, 2, 3, 4, 5, 6, 7, 8}, 2, 4)
	for _, c := range []struct{ keys, want []float64 }{
		{[]float64{1, 3, 2, 0}, []float64{2, 3, 1, 4, 6, 7, 5, 8}},
		{[]float64{2, 1, 2, 1}, []float64{1, 3, 2, 4, 5, 7, 6, 8}}, // equal keys keep their order
		{[]float64{nan, -1, inf, nan}, []float64{3, 2, 1, 4, 7, 6, 5, 8}},
	} {
		near(t, fmt.Sprint(c.keys), evaluate(t, sorted, x, f(c.keys...)),
			reference.Floats(c.want, 2, 4), 0)
	}
	stack := evaluate(t, sorted, reference.Floats([]float64{1, 2, 3, 4}, 2, 1, 2),
		reference.Floats([]float64{0, 1, 1, 0}, 2, 2))
	near(t, "each matrix by its own keys", stack, reference.Floats([]float64{2, 1, 3, 4}, 2, 1, 2), 0)
}

func TestFactorizationsOfOne(t *testing.T) {
	x := reference.Floats([]float64{-4}, 1, 1)
	near(t, "eigenvalue", apply(t, program.OpEighValues, program.Attr{}, program.Type{}, x), f(-4), 0)
	near(t, "eigenvector", apply(t, program.OpEighVectors, program.Attr{}, program.Type{}, x),
		reference.Floats([]float64{1}, 1, 1), 0)
	q := apply(t, program.OpQR, program.Attr{}, program.Type{}, x)
	near(t, "|Q|", reference.Floats([]float64{math.Abs(q.Floats[0])}, 1, 1),
		reference.Floats([]float64{1}, 1, 1), 0)
}

func benchmark(b *testing.B, op program.Op, n int) {
	half := normal(rand.New(rand.NewPCG(4, 4)), n, n)
	for i := range n {
		for j := range i {
			half.Floats[j*n+i] = half.Floats[i*n+j]
		}
	}
	bld := program.NewBuilder("bench")
	x := bld.Input("x", half.Type)
	bld.Output("y", bld.Apply(op, program.Attr{}, program.Type{}, x))
	p, err := bld.Build()
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if _, err := reference.RunArgs(p, half); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkQR(b *testing.B)          { benchmark(b, program.OpQR, 512) }
func BenchmarkEighValues(b *testing.B)  { benchmark(b, program.OpEighValues, 512) }
func BenchmarkEighVectors(b *testing.B) { benchmark(b, program.OpEighVectors, 512) }
