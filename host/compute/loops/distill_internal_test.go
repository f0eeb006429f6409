package loops

import (
	"math"
	"testing"
)

// TestLogFrom checks that the series and math.Log have errors of a few units in the last place.
func TestLogFrom(t *testing.T) {
	for _, least := range []float64{0.5, 0.3, 0.25, 0.2, 0.1, 1e-3, 1e-30} {
		x := make([]float32, 1000)
		want := make([]float64, len(x))
		for i := range x {
			x[i] = float32(math.Pow(least, float64(i)/float64(len(x)-1)))
			want[i] = math.Log(float64(x[i]))
		}
		logFrom(least, x, make([]float32, len(x)), make([]float32, len(x)))
		for i := range x {
			if !(math.Abs(float64(x[i])-want[i]) <= 0x1p-21*math.Abs(want[i])) {
				t.Fatalf("from %g: the logarithm %d is %v, want %v", least, i, x[i], want[i])
			}
		}
	}
}
