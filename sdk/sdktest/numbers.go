package sdktest

import (
	"iter"
	"maps"
	"math"
	"math/rand/v2"
	"slices"

	"gonum.org/v1/gonum/floats"

	"github.com/cage-qat/cage/sdk/program"
)

// distance returns |x − y|. It is 0 if both are NaN or the same infinity, and infinite if
// only one is.
func distance(x, y float64) float64 {
	switch {
	case x == y, math.IsNaN(x) && math.IsNaN(y):
		return 0
	case math.IsNaN(x), math.IsNaN(y):
		return math.Inf(1)
	}
	return math.Abs(x - y)
}

// largest returns the largest finite magnitude, or 0 if there is none.
func largest(data []float64) float64 {
	most := 0.0
	for _, v := range data {
		if a := math.Abs(v); a > most && !math.IsInf(a, 0) {
			most = a
		}
	}
	return most
}

func unravel(offset int, shape []int) []int {
	index := make([]int, len(shape))
	for axis, d := range slices.Backward(shape) {
		index[axis] = offset % d
		offset /= d
	}
	return index
}

// normal is a row-major array of seeded standard normal numbers, rounded to binary32
// so that every machine sees the same.
func normal(seed uint64, shape ...int) []float64 {
	return draw(rand.New(rand.NewPCG(seed, 0)).NormFloat64, shape)
}

func draw(next func() float64, shape []int) []float64 {
	return mapped(make([]float64, program.FloatType(shape...).Size()), func(float64) float64 { return float64(float32(next())) })
}

func mapped(v []float64, f func(float64) float64) []float64 {
	out := make([]float64, len(v))
	for i, x := range v {
		out[i] = f(x)
	}
	return out
}

func full(v float64, n int) []float64 { return slices.Repeat([]float64{v}, n) }

// inOrder yields a map in the order of its keys, so that reports do not change from run to run.
func inOrder[V any](m map[string]V) iter.Seq2[string, V] {
	return func(yield func(string, V) bool) {
		for _, name := range slices.Sorted(maps.Keys(m)) {
			if !yield(name, m[name]) {
				return
			}
		}
	}
}

// scaled is c·v.
func scaled(c float64, v []float64) []float64 {
	return floats.ScaleTo(make([]float64, len(v)), c, v)
}

// axpy is x + c·y.
func axpy(x []float64, c float64, y []float64) []float64 {
	return floats.AddScaledTo(make([]float64, len(x)), x, c, y)
}

func with(v []float64, i int, x float64) []float64 {
	out := slices.Clone(v)
	out[i] = x
	return out
}

// rounded rounds each element to binary32.
func rounded(v []float64) []float64 {
	return mapped(v, func(x float64) float64 { return float64(float32(x)) })
}

func rootMeanSquare(v []float64) float64 { return floats.Norm(v, 2) / math.Sqrt(float64(len(v))) }

// relativeError is ‖got − x‖/‖x‖.
func relativeError(got, x []float64) float64 {
	return rootMeanSquare(axpy(got, -1, x)) / rootMeanSquare(x)
}

func unwritten(n int) []float32 { return slices.Repeat([]float32{float32(math.NaN())}, n) }

func singles(v []float64) []float32 {
	out := make([]float32, len(v))
	for i, x := range v {
		out[i] = float32(x)
	}
	return out
}

func doubles(v []float32) []float64 {
	out := make([]float64, len(v))
	for i, x := range v {
		out[i] = float64(x)
	}
	return out
}
