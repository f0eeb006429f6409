package loops

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// scores returns numbers with all kinds of exponentials: normal, subnormal, 0 and 1.
func scores(r *rand.Rand, n int) []float32 {
	x := make([]float32, n)
	for i := range x {
		switch r.IntN(8) {
		case 0:
			x[i] = -float32(r.Float64()) * 120
		case 1:
			x[i] = -80 - float32(r.Float64())*25
		default:
			x[i] = -float32(r.ExpFloat64())
		}
	}
	for i, special := range []float32{0, float32(math.Copysign(0, -1)), float32(math.Inf(-1)), -104,
		-103.9, -87.4, -88.8, -87, -174, -173.9, -1e-40, -math.MaxFloat32} {
		x[(i*i*7)%n] = special
	}
	return x
}

// TestVectorsOfExp checks that ExpLin gives the bits of exp, for all lengths.
func TestVectorsOfExp(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	for n := range 70 {
		x := append(scores(r, max(n, 1))[:n], inf, -inf, nan, 88.7, 88.73, 89, 89.5, 1e30, 3, 1e-45)
		got, want := make([]float32, len(x)), make([]float32, len(x))
		ExpLin(got, x, 0.75, 0.125)
		for i, v := range x {
			want[i] = exp(float32(v*0.75) - 0.125)
		}
		if i := differs(got, want); i >= 0 {
			t.Fatalf("%d elements: exponential of %v is %v, want %v", len(x), x[i], got[i], want[i])
		}
	}
	for from := float32(-105); from < 90; from += 0.05 {
		x, got, want := make([]float32, 1000), make([]float32, 1000), make([]float32, 1000)
		for i := range x {
			x[i] = from + 0.00005*float32(i)
		}
		ExpLin(got, x, 1, 0)
		for i, v := range x {
			want[i] = exp(v)
		}
		if i := differs(got, want); i >= 0 {
			t.Fatalf("exponential of %v is %v, want %v", x[i], got[i], want[i])
		}
	}
}

// TestSoftmax checks that the vector loops over blocks give the bits of the plain loops, for
// several numbers of rows and columns.
func TestSoftmax(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for _, width := range []int{1, 4, 8, 16, 20, 32, 40, 64} {
		for _, rows := range []int{1, 2, 63, 64, 65, 200} {
			for _, form := range []Form{Exact, Rounded, Paired} {
				name := fmt.Sprintf("%d·%d, form %v", rows, width, form)
				a, d := scores(r, rows*width), scores(r, rows*width)
				if rows > 2 && width > 4 { // NaN stays in its column or row; maxima may ignore it
					a[2*width+3], d[width+1] = float32(math.NaN()), float32(math.Inf(1))
				}
				most := slices.Repeat([]float32{float32(math.Inf(-1))}, width)
				wantMost := slices.Clone(most)
				MaxColumns(most, a)
				for i, x := range a {
					if x > wantMost[i%width] {
						wantMost[i%width] = x
					}
				}
				if i := differs(most, wantMost); i >= 0 && !(i == 3 && rows > 2 && width > 4) {
					t.Fatalf("%s: maximum %d is %v, want %v", name, i, most[i], wantMost[i])
				}
				copy(most, wantMost)

				got, want := slices.Clone(a), slices.Clone(a)
				sums, wantSums := scores(r, width), make([]float32, width)
				copy(wantSums, sums)
				ExpColumns(got, 0.5, most, sums, form)
				plainExpColumns(want, 0.5, most, wantSums, form, 0)
				if i := differs(form.numbers(got), form.numbers(want)); i >= 0 {
					t.Fatalf("%s: exponential %d is %v, want %v", name, i, form.numbers(got)[i],
						form.numbers(want)[i])
				}
				if i := differs(sums, wantSums); i >= 0 {
					t.Fatalf("%s: sum %d is %v, want %v", name, i, sums[i], wantSums[i])
				}

				down, means := make([]float32, rows), scores(r, rows)
				got, want = slices.Clone(a), slices.Clone(a)
				gotD, wantD := slices.Clone(d), slices.Clone(d)
				ExpRows(got, gotD, 0.5, down, means, form)
				plainExpRows(want, wantD, 0.5, down, means, form)
				if i := differs(form.numbers(got), form.numbers(want)); i >= 0 {
					t.Fatalf("%s: weight %d is %v, want %v", name, i, form.numbers(got)[i], form.numbers(want)[i])
				}
				if i := differs(form.numbers(gotD), form.numbers(wantD)); i >= 0 {
					t.Fatalf("%s: adjoint %d is %v, want %v", name, i, form.numbers(gotD)[i],
						form.numbers(wantD)[i])
				}
			}
		}
	}
}

// numbers returns the elements of an operand, one float for each.
func (f Form) numbers(a []float32) []float32 {
	if f != Paired {
		return a
	}
	var x []float32
	for _, word := range a {
		bits := math.Float32bits(word)
		x = append(x, math.Float32frombits(bits<<16), math.Float32frombits(bits&^0xffff))
	}
	return x
}
