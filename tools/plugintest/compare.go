package plugintest

import (
	"testing"

	"gonum.org/v1/gonum/floats"

	"github.com/cage-qat/cage/internal/golden"
)

// Near fails the test unless got equals want within relative times the largest magnitude
// in want; NaN equals NaN.
func Near(t testing.TB, what string, got, want []float64, relative float64) {
	t.Helper()
	tol := golden.Tolerance{Abs: relative * golden.Largest(want)}
	if err := tol.Compare(got, golden.Array{Shape: []int{len(want)}, Data: want}); err != nil {
		t.Errorf("%s: %v", what, err)
	}
}

// Times returns c·v.
func Times(c float64, v []float64) []float64 { return floats.ScaleTo(make([]float64, len(v)), c, v) }
