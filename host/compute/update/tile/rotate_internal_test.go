package tile

import (
	"fmt"
	"math"
	"math/bits"
	"math/rand/v2"
	"testing"
)

// TestRotate: blocks of every size are multiplied by the matrix, in another place and in
// their own.
func TestRotate(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for block := 1; block <= Elements; block *= 2 {
		t.Run(fmt.Sprint(block), func(t *testing.T) {
			a := make([]float32, max(Elements, 3*block)/block*block)
			for i := range a {
				a[i] = float32(rng.NormFloat64())
			}
			got := make([]float32, len(a))
			rotate(got, a, block)
			for i := range a {
				first, want, norm := i/block*block, 0.0, 0.0
				for j, x := range a[first : first+block] {
					sign := 1 - 2*float64(bits.OnesCount(uint((i-first)&j))%2)
					want += sign * float64(x) / math.Sqrt(float64(block))
					norm += float64(x) * float64(x)
				}
				if math.Abs(float64(got[i])-want) > 5e-7*math.Sqrt(norm) {
					t.Fatalf("element %d is %v, want %v", i, got[i], want)
				}
			}
			rotate(a, a, block)
			if i := differs(a, got); i >= 0 {
				t.Fatalf("in its place, element %d is %v, want %v", i, a[i], got[i])
			}
		})
	}
}

// TestRotateLoops: the vectorized loops have the bits of the plain ones, special numbers
// included.
func TestRotateLoops(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	special := []float32{0, float32(math.Copysign(0, -1)), 1e-45, -1e-39, math.MaxFloat32, float32(math.Inf(1)), float32(math.NaN())}
	for n := run; n < 40*run; n += run {
		a, b := make([]float32, n), make([]float32, n)
		for i := range a {
			a[i], b[i] = float32(rng.NormFloat64()), float32(rng.NormFloat64())
			if rng.IntN(2*n) < 3 {
				a[i] = special[rng.IntN(len(special))]
			}
		}
		for size := 1; size <= run; size *= 2 {
			got, want := make([]float32, n), make([]float32, n)
			rotateRuns(got, a, size, 0.3)
			plainRotateRuns(want, a, size, 0.3)
			if i := differs(got, want); i >= 0 {
				t.Fatalf("runs of %d, element %d of %d is %v, want %v", size, i, n, got[i], want[i])
			}
		}
		x, y, p, q := append([]float32(nil), a...), append([]float32(nil), b...), append([]float32(nil), a...), append([]float32(nil), b...)
		butterfly(x, y)
		plainButterfly(p, q)
		if differs(x, p) >= 0 || differs(y, q) >= 0 {
			t.Fatalf("butterflies of %d elements differ", n)
		}
		c, d := append([]float32(nil), a...), append([]float32(nil), b...)
		butterflies(x, y, a, b)
		plainButterflies(p, q, c, d)
		if differs(x, p) >= 0 || differs(y, q) >= 0 || differs(a, c) >= 0 || differs(b, d) >= 0 {
			t.Fatalf("double butterflies of %d elements differ", n)
		}
	}
}

func BenchmarkRotate(b *testing.B) {
	a := make([]float32, Elements)
	for i := range a {
		a[i] = float32(i % 7)
	}
	b.SetBytes(4 * Elements)
	for b.Loop() {
		rotate(a, a, 128)
	}
}
