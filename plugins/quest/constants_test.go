package main

import (
	"math"
	"testing"

	"github.com/cage-qat/cage/sdk/microscaling"
	"gonum.org/v1/gonum/integrate/quad"
	"gonum.org/v1/gonum/stat/distuv"
)

// gaussianError returns E[(z − Q(z))²] for z ~ N(0,1) and evenly spaced levels. Cells meet midway
// between levels, and the integrand is smooth within a cell. Beyond ±12 the density is below 1e-31.
func gaussianError(levels []float64) float64 {
	sum := 0.0
	for i, level := range levels {
		lo, hi := -12.0, 12.0
		if i > 0 {
			lo = (levels[i-1] + level) / 2
		}
		if i < len(levels)-1 {
			hi = (level + levels[i+1]) / 2
		}
		// Only the two outer cells are longer than a step; in short pieces, 20 points are exact enough.
		const piece = 0.5
		for a := lo; a < hi; a += piece {
			sum += quad.Fixed(func(z float64) float64 {
				return (z - level) * (z - level) * distuv.UnitNormal.Prob(z)
			}, a, math.Min(a+piece, hi), 20, quad.Legendre{}, 0)
		}
	}
	return sum
}

// paperLevels returns the levels of the paper's grid with s = k/qmax, officialLevels those of the
// half-integer grid with the largest level k.
func paperLevels(bits int, k float64) []float64 {
	n := 1 << bits
	levels := make([]float64, n)
	for i := range levels {
		levels[i] = float64(i-n/2) * k / float64(n/2-1)
	}
	return levels
}

func officialLevels(bits int, k float64) []float64 {
	n := 1 << bits
	levels := make([]float64, n)
	for i := range levels {
		levels[i] = (float64(i) - float64(n-1)/2) * 2 * k / float64(n-1)
	}
	return levels
}

// minimize finds the minimum of f between lo and hi by golden-section search.
func minimize(f func(float64) float64, lo, hi float64) float64 {
	ratio := (math.Sqrt(5) - 1) / 2
	a, b := hi-ratio*(hi-lo), lo+ratio*(hi-lo)
	fa, fb := f(a), f(b)
	for hi-lo > 1e-9 {
		if fa < fb {
			hi, b, fb = b, a, fa
			a = hi - ratio*(hi-lo)
			fa = f(a)
		} else {
			lo, a, fa = a, b, fb
			b = lo + ratio*(hi-lo)
			fb = f(b)
		}
	}
	return (lo + hi) / 2
}

// TestMatchedK computes each factor again by minimizing the error. The error is flat at its
// minimum: with integrals exact to about 1e-15, the minimum can be located only to about 1e-7.
func TestMatchedK(t *testing.T) {
	for bits := 2; bits <= 8; bits++ {
		got := minimize(func(k float64) float64 { return gaussianError(paperLevels(bits, k)) }, 0.8, 5)
		if !(math.Abs(got-matchedK[bits]) <= 1e-6) {
			t.Errorf("%d bits: the minimum is at k = %.9f, the table has %.9f", bits, got, matchedK[bits])
		}
	}
}

// TestOfficialK checks that the published constants deviate from the exact optima of the
// half-integer grid as their comment states.
func TestOfficialK(t *testing.T) {
	short := []float64{1: 0, 2: 0, 3: 0, 4: 0, 5: 0, 6: 0.0004, 7: 0.0028, 8: 0.0095}
	for bits := 1; bits <= 8; bits++ {
		best := minimize(func(k float64) float64 { return gaussianError(officialLevels(bits, k)) },
			0.5, 5)
		if miss := 1 - microscaling.HalfIntegerFactors[bits]/best; !(math.Abs(miss-short[bits]) <= 5e-5) {
			t.Errorf("%d bits: k = %.7f is %.4f %% below the optimum %.7f, want %.4f %%", bits,
				microscaling.HalfIntegerFactors[bits], 100*miss, best, 100*short[bits])
		}
	}
}
