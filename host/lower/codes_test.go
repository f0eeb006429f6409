package lower_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/gomlx/gomlx/core/graph"

	"github.com/cage-qat/cage/host/engine"
	"github.com/cage-qat/cage/host/internal/testdevice"
	"github.com/cage-qat/cage/host/lower"
	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/program"
)

// quantizerOf makes a quantizer of matrices from the value and the surrogate of its program.
func quantizerOf(t *testing.T, name string, rows, columns int, make func(b *program.Builder, x program.Value) (value, surrogate program.Value),
	trained ...sdk.StateTensor) lower.Quantizer {
	t.Helper()
	b := program.NewBuilder(name)
	value, surrogate := make(b, b.Input(sdk.InputX, program.FloatType(rows, columns)))
	b.Output(sdk.OutputValue, value)
	b.Output(sdk.OutputSurrogate, surrogate)
	p, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	q, err := lower.NewQuantizer(sdk.QuantizerProgram{Program: p, Trained: trained})
	if err != nil {
		t.Fatal(err)
	}
	return q
}

// uniform quantizes rows to whole numbers between −8 and 7 times a scale of the row.
func uniform(t *testing.T, rows, columns int) lower.Quantizer {
	t.Helper()
	return quantizerOf(t, "uniform", rows, columns, func(_ *program.Builder, x program.Value) (value, surrogate program.Value) {
		scale := x.Abs().MaxRow().Scale(1.0 / 8)
		return x.Div(scale).Clip(-8, 7).Round().Mul(scale), x
	})
}

// TestProductOfCodes: the product of integers is that of the values, and more exact than theirs in bfloat16; rounded to
// bfloat16 itself it is as exact as a number can be.
func TestProductOfCodes(t *testing.T) {
	const tokens, in, out = 32, 1024, 24
	rng := rand.New(rand.NewPCG(1, 2))
	random := func(n int) []float32 {
		values := make([]float32, n)
		for i := range values {
			values[i] = float32(rng.NormFloat64())
		}
		return values
	}
	x, w := random(tokens*in), random(out*in)
	qx, qw := uniform(t, tokens, in), uniform(t, out, in)
	d := testdevice.Open(t, engine.Options{Precision: engine.BFloat16, Products: engine.IntegerProducts})
	buffers := []*engine.Buffer{testdevice.Upload(t, d, x, tokens, in), testdevice.Upload(t, d, w, out, in)}
	got := testdevice.Evaluate(t, d, buffers, func(_ *graph.Graph, in []*graph.Node) []*graph.Node {
		a, b := lower.Quantize(in[0], nil, qx), lower.Quantize(in[1], nil, qw)
		exact, ok := lower.ProductOfCodes(a, b, false)
		rounded, both := lower.ProductOfCodes(a, b, true)
		if !ok || !both {
			t.Fatal("the codes are not known")
		}
		if _, ok := lower.ProductOfCodes(a, in[1], false); ok {
			t.Error("a matrix that is not quantized has codes")
		}
		return []*graph.Node{a, b, exact, rounded, engine.DotGeneral(a, []int{1}, nil, b, []int{1}, nil)}
	})
	var size float64
	var wrong [3]float64 // of integers, of integers that are rounded at the end, of values
	for i := range tokens {
		for j := range out {
			want := 0.0
			for k := range in {
				want += float64(got[0][i*in+k]) * float64(got[1][j*in+k])
			}
			size += want * want
			for f := range wrong {
				e := float64(got[2+f][i*out+j]) - want
				wrong[f] += e * e
			}
		}
	}
	for f := range wrong {
		wrong[f] = math.Sqrt(wrong[f] / size)
	}
	t.Logf("relative errors: of integers %.2g, rounded at the end %.2g, of values in bfloat16 %.2g", wrong[0], wrong[1], wrong[2])
	if wrong[0] > 1e-6 || wrong[1] > 1.0/256 || wrong[2] < 100*wrong[0] {
		t.Errorf("relative errors of %g", wrong)
	}
}
