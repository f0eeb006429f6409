package vecmath

import (
	"math"
	"testing"
)

// TestSoftmaxOfInfinite: where the largest score is infinite there is no weight to be told, on any processor.
func TestSoftmaxOfInfinite(t *testing.T) {
	inf := float32(math.Inf(1))
	before := active
	defer func() { active = before }()
	for _, active = range append(supported(), portable) {
		for name, first := range map[string]float32{"one is infinite": inf, "all are minus infinity": -inf, "one is no number": float32(math.NaN())} {
			for _, n := range []int{1, 7, 20, 64} {
				x := make([]float32, n)
				for i := range x {
					if x[i] = float32(i); first == -inf {
						x[i] = -inf
					}
				}
				x[n/2] = first
				Softmax(x, 0.5)
				for i, v := range x {
					if v == v {
						t.Fatalf("%s, %s: element %d of %d is %v", active.name, name, i, n, v)
					}
				}
			}
		}
	}
}
