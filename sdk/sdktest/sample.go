package sdktest

import (
	"math/rand/v2"
	"slices"

	"github.com/cage-qat/cage/sdk/program"
)

// normal is a row-major array of seeded standard normal numbers, rounded to binary32
// so that every machine sees the same.
func normal(seed uint64, shape ...int) []float64 {
	r := rand.New(rand.NewPCG(seed, 0))
	data := make([]float64, program.FloatType(shape...).Size())
	for i := range data {
		data[i] = float64(float32(r.NormFloat64()))
	}
	return data
}

// uniform is an array of seeded numbers between −1 and 1.
func uniform(seed uint64, shape ...int) []float64 {
	r := rand.New(rand.NewPCG(seed, 1))
	data := make([]float64, program.FloatType(shape...).Size())
	for i := range data {
		data[i] = float64(float32(2*r.Float64() - 1))
	}
	return data
}

// full is n times v.
func full(v float64, n int) []float64 { return slices.Repeat([]float64{v}, n) }

// scaled is c·v.
func scaled(c float64, v []float64) []float64 {
	out := make([]float64, len(v))
	for i, x := range v {
		out[i] = c * x
	}
	return out
}

// with is v with one element replaced.
func with(v []float64, i int, x float64) []float64 {
	out := slices.Clone(v)
	out[i] = x
	return out
}

// single rounds each element to binary32.
func single(v []float64) []float64 {
	out := make([]float64, len(v))
	for i, x := range v {
		out[i] = float64(float32(x))
	}
	return out
}

func dotProduct(x, y []float64) float64 {
	sum := 0.0
	for i, v := range x {
		sum += v * y[i]
	}
	return sum
}
