package model

import (
	"math"
	"slices"
	"testing"

	"github.com/cage-qat/cage/host/compute/device"
	"github.com/cage-qat/cage/host/model/architecture"
	"github.com/cage-qat/cage/host/model/network"
	"github.com/cage-qat/cage/internal/testing/testlevel"
	"github.com/cage-qat/cage/sdk/program"
)

// TestGaussNewton checks that the mean over keys of n·‖g‖², where g is the gradient of the mean of
// n drawn losses, is the trace of the Gauss-Newton matrix of the loss, Σᵢ Σ_c p_ic·‖∇ℓ_ic‖²/n, a
// sum over all labels c of each token i.
func TestGaussNewton(t *testing.T) {
	testlevel.Long(t, "300 gradients of drawn losses, and 24 of single ones")
	settings := architecture.Settings{Kind: architecture.KindLlama, Layers: 1, Width: 8, Heads: 2,
		Hidden: 12, Vocab: 6}
	settings.FillIn()
	m := newTransformer(settings, Options{Documents: true})
	const context, keys = 4, 300
	row := func(tokens []int32, weight func(target int) float32) []int32 {
		batch := slices.Concat(tokens, make([]int32, 2*(context+1)))
		for i := range context {
			batch[2*(context+1)+i+1] = int32(math.Float32bits(weight(i)))
		}
		return batch
	}
	ids := hashedTokens(0, context+1, settings.Vocab)
	squares := func(values []program.Value) program.Value {
		total := values[0].Builder().Const(0)
		for _, v := range values {
			total = total.Add(v.Square().SumAll())
		}
		return total
	}
	weights := hashedWeights(m.Params())
	exact := 0.0
	for i := range context {
		for c := range settings.Vocab {
			tokens := slices.Clone(ids)
			tokens[i+1] = int32(c) // of the losses, only that of this token counts
			batch := row(tokens, func(target int) float32 {
				if target == i {
					return context // so that the mean is the loss
				}
				return 0
			})
			out := evaluateIn(t, device.Float32, m, weights, batch, 1,
				func(params []program.Value, batch program.Value) []program.Value {
					batch = batch.Reshape(m.BatchDims(1, context)...)
					loss, gradients := lossAndGradients(m, params, batch)
					return []program.Value{loss, squares(gradients)}
				})
			exact += math.Exp(-float64(out[0][0])) * float64(out[1][0]) / context
		}
	}
	sum, sum2 := 0.0, 0.0
	const each = 20 // keys per program
	for first := range keys / each {
		batch := row(ids, func(int) float32 { return 1 })
		out := evaluateIn(t, device.Float32, m, weights, batch, 1,
			func(params []program.Value, batch program.Value) []program.Value {
				of := passOf(m, params, batch.Reshape(m.BatchDims(1, context)...))
				of.Head.Sampled = true
				var list []program.Value
				for k := range each {
					of.inputs[network.Key] = batch.Builder().Apply(program.OpConstant,
						program.Attr{Ints: []int64{int64(first), int64(1000 * k)}},
						program.Type{DType: program.Uint, Shape: []int{2}})
					_, gradients := of.gradients(m)
					list = append(list, squares(gradients))
				}
				return list
			})
		for _, v := range out {
			x := float64(v[0]) * context
			sum, sum2 = sum+x, sum2+x*x
		}
	}
	mean := sum / keys
	deviation := math.Sqrt((sum2/keys - mean*mean) / keys)
	t.Logf("%v keys: %.4g ± %.2g; exact: %.4g", keys, mean, deviation, exact)
	if math.Abs(mean-exact) > 4*deviation || deviation > 0.1*exact {
		t.Errorf("the mean over keys is %v ± %v, want %v", mean, deviation, exact)
	}
}
