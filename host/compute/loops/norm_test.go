package loops

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// TestNorm compares adjoints of several numbers and lengths of rows with float64, and checks that
// the order of tasks does not change their bits.
func TestNorm(t *testing.T) {
	for _, rows := range []int{1, 3, 64, 65, 300} {
		for _, width := range []int{1, 7, 16, 100, 256} {
			t.Run(fmt.Sprint(rows, width), func(t *testing.T) {
				rng := rand.New(rand.NewPCG(uint64(rows), uint64(width)))
				draw := func(n int) []float32 {
					list := make([]float32, n)
					for i := range list {
						list[i] = float32(rng.NormFloat64())
					}
					return list
				}
				n := Norm{width, draw(rows * width), draw(width), draw(rows), draw(rows * width), nil}
				if width%2 == 1 {
					n.Sum = draw(rows * width)
				}
				dx, dGain := draw(rows*width), draw(width) // results overwrite them
				n.Adjoints(dx, dGain, func(n int, f func(i int)) {
					for i := range n {
						f(i)
					}
				})
				wantGain := make([]float64, width)
				for r, s := range n.Scale {
					scale, projection := float64(s), 0.0
					for j := range width {
						product := float64(n.Adjoint[r*width+j]) * float64(n.X[r*width+j]) * scale
						wantGain[j] += product
						projection += product * float64(n.Gain[j]) / float64(width)
					}
					for j := range width {
						i := r*width + j
						want := (float64(n.Adjoint[i])*float64(n.Gain[j]) - float64(n.X[i])*scale*projection) * scale
						if n.Sum != nil {
							want += float64(n.Sum[i])
						}
						if !(math.Abs(float64(dx[i])-want) <= 2e-5*(1+math.Abs(want))) {
							t.Fatalf("the adjoint of element %d of row %d is %v, want %v", j, r, dx[i], want)
						}
					}
				}
				for j, want := range wantGain {
					if !(math.Abs(float64(dGain[j])-want) <= 1e-6*float64(rows+10)) {
						t.Fatalf("the adjoint of gain %d is %v, want %v", j, dGain[j], want)
					}
				}
				x, gain := draw(rows*width), draw(width)
				n.Adjoints(x, gain, func(n int, f func(i int)) {
					for i := range n {
						f(n - 1 - i)
					}
				})
				if !slices.Equal(x, dx) || !slices.Equal(gain, dGain) {
					t.Fatal("the order of the tasks matters")
				}
			})
		}
	}
}
