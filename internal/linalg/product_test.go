package linalg

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
)

// each runs a test for each set of kernels that this processor supports.
func each(t *testing.T, test func(t *testing.T)) {
	defer func(k kernels) { active = k }(active)
	for _, k := range supported() {
		active = k
		t.Run(k.name, test)
	}
}

func normal(seed uint64, rows, cols int) Matrix {
	r := rand.New(rand.NewPCG(seed, 1))
	m := RowMajor(make([]float64, rows*cols), rows, cols)
	for i := range m.Data {
		m.Data[i] = r.NormFloat64()
	}
	return m
}

// naive returns alpha·a·b + c, computed by the definition.
func naive(c Matrix, alpha float64, a, b Matrix) Matrix {
	out := RowMajor(make([]float64, c.Rows*c.Cols), c.Rows, c.Cols)
	for i := range c.Rows {
		for j := range c.Cols {
			sum := 0.0
			for k := range a.Cols {
				sum += a.at(i, k) * b.at(k, j)
			}
			out.Data[i*c.Cols+j] = c.at(i, j) + alpha*sum
		}
	}
	return out
}

// near fails the test unless the matrices differ by at most the tolerance in each element.
func near(t *testing.T, what string, got, want Matrix, tolerance float64) {
	t.Helper()
	if got.Rows != want.Rows || got.Cols != want.Cols {
		t.Fatalf("%s is %d×%d, want %d×%d", what, got.Rows, got.Cols, want.Rows, want.Cols)
	}
	for i := range want.Rows {
		for j := range want.Cols {
			if g, w := got.at(i, j), want.at(i, j); !(math.Abs(g-w) <= tolerance) {
				t.Fatalf("%s: element (%d, %d) is %v, want %v", what, i, j, g, w)
			}
		}
	}
}

func TestMulAdd(t *testing.T) {
	each(t, func(t *testing.T) {
		for _, n := range [][3]int{{1, 1, 1}, {6, 16, 3}, {7, 17, 5}, {5, 3, 300}, {100, 33, 257},
			{97, 1030, 2}, {12, 32, 0}} {
			rows, cols, inner := n[0], n[1], n[2]
			a, b, c := normal(1, rows, inner), normal(2, inner, cols), normal(3, rows, cols)
			for _, form := range []struct {
				name string
				a, b Matrix
			}{
				{"a·b", a, b},
				{"aᵀ·b", transposed(a).T(), b},
				{"a·bᵀ", a, transposed(b).T()},
			} {
				got := RowMajor(append([]float64{}, c.Data...), rows, cols)
				MulAdd(got, -2, form.a, form.b)
				near(t, fmt.Sprint(form.name, n), got, naive(c, -2, a, b), 1e-12)
			}
		}
	})
}

// TestMulAddSingle compares products with the definition, within the error bound for float32.
func TestMulAddSingle(t *testing.T) {
	each(t, func(t *testing.T) {
		for _, n := range [][3]int{{1, 1, 1}, {7, 33, 5}, {100, 65, 257}, {12, 32, 0}} {
			rows, cols, inner := n[0], n[1], n[2]
			a, b, c := normal(1, rows, inner), normal(2, inner, cols), normal(3, rows, cols)
			got := RowMajor(append([]float64{}, c.Data...), rows, cols)
			MulAddSingle(got, a, transposed(b).T())
			near(t, fmt.Sprint(n), got, naive(c, 1, a, b), 2*0x1p-24*float64((inner+2)*(inner+2)))
		}
	})
}

// transposed returns a copy of the transpose.
func transposed(m Matrix) Matrix {
	out := RowMajor(make([]float64, m.Rows*m.Cols), m.Cols, m.Rows)
	for i := range m.Rows {
		for j := range m.Cols {
			out.Data[j*m.Rows+i] = m.at(i, j)
		}
	}
	return out
}

func TestMulAddSpreadsNaN(t *testing.T) {
	each(t, func(t *testing.T) {
		a, b, c := RowMajor(make([]float64, 49), 7, 7), normal(1, 7, 7),
			RowMajor(make([]float64, 49), 7, 7)
		b.Data[3*7+2] = math.NaN()
		MulAdd(c, 1, a, b)
		for i, v := range c.Data {
			if math.IsNaN(v) != (i%7 == 2) {
				t.Errorf("element %d of 0·b is %v", i, v)
			}
		}
	})
}

// TestVectors compares the vector kernels with the portable ones, for all lengths below 70.
func TestVectors(t *testing.T) {
	each(t, func(t *testing.T) {
		for n := range 70 {
			m := normal(uint64(n), 6, n)
			x, y := m.row(4), m.row(5)
			if got, want := active.double.dot(x, y), dotPortable[float64](x, y); math.Abs(got-want) > 1e-13 {
				t.Fatalf("dot of %d: %v, want %v", n, got, want)
			}
			got, want := append([]float64{}, y...), append([]float64{}, y...)
			active.double.axpy(0.3, x, got)
			axpyPortable(0.3, x, want)
			near(t, "axpy", RowMajor(got, 1, n), RowMajor(want, 1, n), 1e-15)
			xs, ys := narrow(RowMajor(x, 1, n)).Data, narrow(RowMajor(y, 1, n)).Data
			if got, want := active.single.dot(xs, ys), dotPortable(xs,
				ys); math.Abs(float64(got-want)) > 1e-5 {
				t.Fatalf("single dot of %d: %v, want %v", n, got, want)
			}
			gotSingle, wantSingle := append([]float32{}, ys...), append([]float32{}, ys...)
			active.single.axpy(0.3, xs, gotSingle)
			axpyPortable(0.3, xs, wantSingle)
			for i, v := range wantSingle {
				if math.Abs(float64(gotSingle[i]-v)) > 1e-6 {
					t.Fatalf("single axpy of %d: element %d is %v, want %v", n, i, gotSingle[i], v)
				}
			}
			alpha := [4]float64{1, -2, 0.5, 3}
			s := active.four(m.row(0), m.row(1), m.row(2), m.row(3), x, got, &alpha)
			w := fourPortable(m.row(0), m.row(1), m.row(2), m.row(3), x, want, &alpha)
			near(t, "sums of four", RowMajor(s[:], 1, 4), RowMajor(w[:], 1, 4), 1e-13)
			near(t, "four", RowMajor(got, 1, n), RowMajor(want, 1, n), 1e-14)
			value, slope := active.secular(x, y, 0.1, 9)
			v, sl := secularPortable(x, y, 0.1, 9)
			if math.Abs(value-v) > 1e-13 || math.Abs(slope-sl) > 1e-13 {
				t.Fatalf("secular of %d: %v, %v, want %v, %v", n, value, slope, v, sl)
			}
		}
	})
}

// flops reports the speed of a benchmark with the given number of operations per iteration.
func flops(b *testing.B, each float64) {
	b.ReportMetric(each*float64(b.N)/b.Elapsed().Seconds()/1e9, "GFLOP/s")
}

func BenchmarkMulAdd(b *testing.B) {
	defer func(k kernels) { active = k }(active)
	for _, k := range supported() {
		active = k
		for name, multiply := range map[string]func(c, a,
			b Matrix){"double": func(c, a, b Matrix) { MulAdd(c, 1, a, b) }, "single": MulAddSingle} {
			for _, n := range []int{256, 768} {
				b.Run(fmt.Sprintf("%s/%s/%d", k.name, name, n), func(b *testing.B) {
					x, y, c := normal(1, n, n), normal(2, n, n), normal(3, n, n)
					for b.Loop() {
						multiply(c, x, y.T())
					}
					flops(b, 2*float64(n)*float64(n)*float64(n))
				})
			}
		}
	}
}

// TestAddSymmetric checks that the lower triangle has the bits of the full product, and that the
// upper one mirrors it.
func TestAddSymmetric(t *testing.T) {
	each(t, func(t *testing.T) {
		for _, n := range [][2]int{{1, 1}, {7, 3}, {33, 40}, {96, 200}, {130, 17}, {600, 5}} {
			x := normal(1, n[0], n[1])
			want, got := RowMajor(make([]float64, n[0]*n[0]), n[0], n[0]),
				RowMajor(make([]float64, n[0]*n[0]), n[0], n[0])
			MulAdd(want, 1, x, x.T())
			AddSymmetric(got, x, x.T())
			for i := range n[0] {
				for j := range i + 1 {
					if got.at(i, j) != want.at(i, j) || got.at(j, i) != want.at(i, j) {
						t.Fatalf("%v: elements (%d, %d) are %v and %v, want %v", n, i, j, got.at(i, j), got.at(j, i),
							want.at(i, j))
					}
				}
			}
		}
	})
}
