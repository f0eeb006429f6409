package plugintest

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/cage-qat/cage/internal/golden"
	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/program"
)

// Matrix describes a weight matrix to train.
func Matrix(shape ...int) sdk.Tensor {
	return sdk.Tensor{Name: "w", Role: sdk.TensorMatrix, Shape: shape}
}

// Vector describes the weight of a norm to train.
func Vector(n int) sdk.Tensor {
	return sdk.Tensor{Name: "norm", Role: sdk.TensorVector, Shape: []int{n}}
}

// Normal returns a tensor of seeded standard normal numbers, rounded to binary32 so that
// every machine sees the same.
func Normal(seed uint64, shape ...int) golden.Array {
	r := rand.New(rand.NewPCG(seed, 0))
	data := make([]float64, program.FloatType(shape...).Size())
	for i := range data {
		data[i] = float64(float32(r.NormFloat64()))
	}
	return golden.Array{Shape: shape, Data: data}
}

// Hadamard multiplies each run of order entries by the Sylvester matrix, using the plain
// fast transform in binary64.
func Hadamard(x golden.Array, order int) golden.Array {
	out := x.Clone()
	for n := 1; n < order; n *= 2 {
		for i := range out.Data {
			if i&n == 0 {
				a, b := out.Data[i], out.Data[i+n]
				out.Data[i], out.Data[i+n] = a+b, a-b
			}
		}
	}
	for i := range out.Data {
		out.Data[i] /= math.Sqrt(float64(order))
	}
	return out
}

// Settings returns complete, checked settings for those of a case. If the description
// does not declare one, or declares it differently, the test ends.
func Settings(t testing.TB, d sdk.Description, given map[string]any) sdk.Values {
	t.Helper()
	if err := d.Check(); err != nil {
		t.Fatal(err)
	}
	values, err := d.Resolve(given)
	if err != nil {
		t.Fatal(err)
	}
	return values
}
