package loops

import (
	"math"
	"math/rand/v2"
	"testing"
)

// TestQuantizer: for every length and choice of results, also in the place of the numbers, the bits of the plain loops, and
// nothing written behind the end.
func TestQuantizer(t *testing.T) {
	t.Run("widest", testQuantizer)
	if hasAVX512 {
		hasAVX512 = false
		defer func() { hasAVX512 = true }()
		t.Run("AVX2", testQuantizer)
	}
}

func testQuantizer(t *testing.T) {
	rng := rand.New(rand.NewPCG(13, 14))
	special := []float32{0, float32(math.Copysign(0, -1)), 0.5, -2.5, 7.5, -8.5, 1e-45, math.MaxFloat32, float32(math.Inf(1)), float32(math.Inf(-1)), float32(math.NaN())}
	for n := range 600 {
		a := make([]float32, n)
		for i := range a {
			a[i] = float32(6 * rng.NormFloat64())
			if rng.IntN(6) == 0 {
				a[i] = special[rng.IntN(len(special))]
			}
		}
		q := Quantizer{Divides: rng.IntN(2) == 0, Divisor: float32(rng.NormFloat64()), Low: -8, High: 7, Scale: float32(rng.NormFloat64()), Distance: 0.5}
		if rng.IntN(10) == 0 {
			q.Divisor, q.Scale = special[rng.IntN(len(special))], special[rng.IntN(len(special))]
		}
		x, c, near, values := make([]float32, n), make([]float32, n), make([]float32, n), make([]float32, n)
		for i, v := range a {
			if x[i] = v; q.Divides {
				x[i] /= q.Divisor
			}
			c[i] = Clamp1(x[i], q.Low, q.High)
			near[i] = Two(Le, One(Abs, x[i]-c[i]), q.Distance)
			c[i] = float32(c[i]+shifter) - shifter
			values[i] = c[i] * q.Scale
		}
		chosen := rng.IntN(32)
		is := func(bit int) bool { return chosen>>bit&1 == 1 }
		whole, codes, all, brief, bools := results[float32](n, is(0)), results[int8](n, is(1)), results[float32](n, is(2)), results[uint16](n, is(3)), results[bool](n, is(4))
		if is(0) {
			copy(whole, a)
			a = whole[:n]
		}
		q.Run(Quantized{whole, codes, all, brief, bools}.Part(0, n), a)
		if i := differs(whole, c[:min(n, len(whole))]); i >= 0 {
			t.Fatalf("element %d of %d is rounded to %v, want %v", i, n, whole[i], c[i])
		}
		if i := differs(all, values[:min(n, len(all))]); i >= 0 {
			t.Fatalf("element %d of %d has the value %v, want %v", i, n, all[i], values[i])
		}
		for i := range n {
			switch {
			case is(1) && c[i] == c[i] && float32(codes[i]) != c[i]:
				t.Fatalf("element %d of %d has the code %d, want %v", i, n, codes[i], c[i])
			case is(3) && values[i] == values[i] && brief[i] != short(values[i]):
				t.Fatalf("element %d of %d has the value %#x in bfloat16, want %v", i, n, brief[i], values[i])
			case is(4) && bools[i] != (near[i] != 0):
				t.Fatalf("element %d of %d is near: %v, want %v", i, n, bools[i], near[i])
			}
		}
		if is(0) && whole[n] != 0 || is(1) && codes[n] != 0 || is(2) && all[n] != 0 || is(3) && brief[n] != 0 || is(4) && bools[n] {
			t.Fatalf("%d elements: something is written behind the end", n)
		}
	}
}

// results are n elements and some behind them, if they are wanted.
func results[T any](n int, wanted bool) []T {
	if !wanted {
		return nil
	}
	return make([]T, n+20)
}
