package plugintest

import (
	"math"
	"math/rand/v2"
	"path/filepath"
	"testing"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"

	"github.com/cage-qat/cage/internal/testing/golden"
	"github.com/cage-qat/cage/internal/testing/testlevel"
	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/microscaling"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/sdktest"
)

// Kit returns the conformance-kit options for the plugins of this repository, which are also tested
// on the CPU device and with the given golden file.
func Kit(t testing.TB, goldenFile string, more ...sdktest.Option) []sdktest.Option {
	t.Helper()
	return append(With(t, nil, more...), sdktest.GoldenFile(t, goldenPath(goldenFile)))
}

// Fixed returns conformance-kit options for further settings of a plugin, where another test varies
// all parameters. The kit varies those that are not given; here, all are given, by their defaults,
// unless tests run all cases.
func Fixed(t testing.TB, plugin interface{ Describe() sdk.Description }, settings map[string]any,
	more ...sdktest.Option) []sdktest.Option {
	t.Helper()
	if !testlevel.All() {
		settings = Settings(t, plugin.Describe(), settings).Map()
	}
	return With(t, settings, more...)
}

// With returns conformance-kit options for other settings.
func With(t testing.TB, settings map[string]any, more ...sdktest.Option) []sdktest.Option {
	t.Helper()
	return append([]sdktest.Option{sdktest.On(CPU(t).machine), sdktest.With(settings)}, more...)
}

// EachCase runs a test for each case of the given golden file on each machine. It is for
// comparisons that the conformance kit, which also runs these files, cannot make.
func EachCase(t *testing.T, goldenFile string, test func(t *testing.T, m Bench, c golden.Case)) {
	t.Helper()
	f := golden.Load(t, goldenPath(goldenFile))
	Each(t, func(t *testing.T, m Bench) {
		f.Run(t, func(t *testing.T, c golden.Case) { test(t, m, c) })
	})
}

func goldenPath(name string) string { return filepath.Join("testdata", name+".json") }

// Near fails the test unless got equals want, up to relative times the largest magnitude in want.
// NaN equals NaN.
func Near(t testing.TB, what string, got, want []float64, relative float64) {
	t.Helper()
	tol := golden.Tolerance{Abs: relative * golden.Largest(want)}
	if err := tol.Compare(got, golden.Array{Shape: []int{len(want)}, Data: want}); err != nil {
		t.Errorf("%s: %v", what, err)
	}
}

// Times returns c·v.
func Times(c float64, v []float64) []float64 {
	return floats.ScaleTo(make([]float64, len(v)), c,
		v)
}

// ShortScales fails the test unless each product of a scale and a factor is positive and
// representable in dtype, a value of the setting scale_dtype.
func ShortScales(t testing.TB, dtype string, scale []float64, factors ...float64) {
	t.Helper()
	bits, least := 24, -149
	switch microscaling.ScaleType(dtype) {
	case microscaling.ScaleBF16:
		bits, least = 8, -133
	case microscaling.ScaleF16:
		bits, least = 11, -24
	}
	for _, s := range scale {
		for _, factor := range factors {
			v := s * factor
			_, exponent := math.Frexp(v)
			unit := math.Ldexp(1, max(least, exponent-bits))
			if !(v > 0) || math.Mod(v, unit) != 0 || bits == 11 && v > 65504 {
				t.Errorf("scale %v times %v is not representable in %s", s, factor, dtype)
			}
		}
	}
}

// Matrix returns a trainable weight matrix of the given shape.
func Matrix(shape ...int) sdk.Tensor {
	return sdk.Tensor{Name: "w", Role: sdk.TensorMatrix, Shape: shape}
}

// Vector returns a trainable norm weight with n elements.
func Vector(n int) sdk.Tensor {
	return sdk.Tensor{Name: "norm", Role: sdk.TensorVector, Shape: []int{n}}
}

// Normal returns standard normal numbers drawn from a seed. They are rounded to float32, so that
// they are the same on every machine.
func Normal(seed uint64, shape ...int) golden.Array {
	r := rand.New(rand.NewPCG(seed, 0))
	data := make([]float64, program.FloatType(shape...).Size())
	for i := range data {
		data[i] = float64(float32(r.NormFloat64()))
	}
	return golden.Array{Shape: shape, Data: data}
}

// Hadamard multiplies each run of order elements by the Sylvester matrix, with the plain fast
// transform in float64.
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

// Settings returns the given settings, checked and completed by defaults. It fails the test if the
// description does not declare one of them, or declares another type.
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

// Product returns a·bᵀ.
func Product(a, b golden.Array) golden.Array {
	var y mat.Dense
	y.Mul(dense(a), dense(b).T())
	return golden.Array{Shape: []int{a.Shape[0], b.Shape[0]}, Data: y.RawMatrix().Data}
}

// Transposed returns xᵀ.
func Transposed(x golden.Array) golden.Array {
	return golden.Array{Shape: []int{x.Shape[1], x.Shape[0]},
		Data: mat.DenseCopyOf(dense(x).T()).RawMatrix().Data}
}

func dense(x golden.Array) *mat.Dense { return mat.NewDense(x.Shape[0], x.Shape[1], x.Data) }
