package decode

import (
	"math"
	"testing"
)

// TestSoftmax checks softmax for vectors of many lengths, also if the exponential of an element is
// too small or too large for float32.
func TestSoftmax(t *testing.T) {
	for n := 1; n < 70; n++ {
		for _, spread := range []float64{1, 30, 1000} {
			const scale = 0.125
			x, want, sum, most := make([]float32, n), make([]float64, n), 0.0, float32(math.Inf(-1))
			for i := range x {
				x[i] = float32(spread * math.Sin(float64(3*i+n)))
				most = max(most, x[i])
			}
			for i, v := range x {
				want[i] = math.Exp(scale * float64(v-most))
				sum += want[i]
			}
			softmax(x, scale)
			for i, v := range x {
				if w := want[i] / sum; math.Abs(float64(v)-w) > 1e-6*w+1e-30 {
					t.Fatalf("element %d of %d is %v, want %v", i, n, v, w)
				}
			}
		}
	}
}

func TestSwiGLU(t *testing.T) {
	for n := range 40 {
		a, b, want := make([]float32, n+1), make([]float32, n), make([]float64, n)
		for i := range b {
			a[i], b[i] = float32(200*math.Sin(float64(i*i+n))), float32(i-3)
			want[i] = float64(a[i]) / (1 + math.Exp(-float64(a[i]))) * float64(b[i])
		}
		a[n] = 7
		swiGLU(a[:n], b)
		for i, w := range want {
			if math.Abs(float64(a[i])-w) > 1e-6*math.Abs(w)+1e-30 {
				t.Fatalf("element %d of %d is %v, want %v", i, n, a[i], w)
			}
		}
		if a[n] != 7 {
			t.Fatalf("%v was written behind %d elements", a[n], n)
		}
	}
}

// TestNaN checks that softmax and swiGLU do not turn a NaN into a number.
func TestNaN(t *testing.T) {
	nan := float32(math.NaN())
	x, a := []float32{1, nan, 2}, []float32{nan, 1}
	softmax(x, 1)
	swiGLU(a, []float32{1, 1})
	if x[1] == x[1] || a[0] == a[0] || a[1] != a[1] {
		t.Errorf("softmax %v, SwiGLU %v", x, a)
	}
}

func BenchmarkSwiGLU(b *testing.B) {
	x, y := make([]float32, 1536), make([]float32, 1536)
	b.SetBytes(4 * 1536)
	for b.Loop() {
		swiGLU(x, y)
	}
}

// TestSoftmaxOfInfinite checks that all weights are NaN if the largest score is infinite or a score
// is NaN.
func TestSoftmaxOfInfinite(t *testing.T) {
	inf := float32(math.Inf(1))
	for name, first := range map[string]float32{"one is infinite": inf, "all are minus infinity": -inf,
		"one is no number": float32(math.NaN())} {
		for _, n := range []int{1, 7, 20, 64} {
			x := make([]float32, n)
			for i := range x {
				if x[i] = float32(i); first == -inf {
					x[i] = -inf
				}
			}
			x[n/2] = first
			softmax(x, 0.5)
			for i, v := range x {
				if v == v {
					t.Fatalf("%s: element %d of %d is %v", name, i, n, v)
				}
			}
		}
	}
}
