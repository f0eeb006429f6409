package model

import (
	"math"
	"slices"
	"testing"

	"github.com/cage-qat/cage/host/compute/device"
	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/model/architecture"
	"github.com/cage-qat/cage/host/model/network"
	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/program"
)

// powers returns n powers of two. Multiplying float32 numbers by them is exact.
func powers(n int) []float32 {
	list := make([]float32, n)
	for i := range list {
		list[i] = float32(math.Ldexp(1, int(mix(9, i)%5)-2))
	}
	return list
}

// TestBackwardOperands checks that each product of the backward pass gets operands of the right
// shape, with the rows in the order of the weight. Factors of the outputs on one operand and their
// inverses on the other do not change dx. Factors of the rows of dyᵀ and xᵀ become factors of the
// rows and columns of dW. In float32 only the order of sums differs.
func TestBackwardOperands(t *testing.T) {
	for _, precision := range []device.Precision{device.Float32, device.BFloat16} {
		t.Run(string(precision), func(t *testing.T) {
			eachLanguage(t, func(t *testing.T, m Language) { testBackwardOperands(t, m, precision) })
		})
	}
}

func testBackwardOperands(t *testing.T, m Language, precision device.Precision) {
	const batch, context = 4, 16
	tokens := hashedTokens(0, batch*(context+1), tiny.Vocab)
	scaled := map[string]bool{} // weights whose gradients are multiplied
	run := func(attach bool) [][]float32 {
		return evaluateIn(t, precision, m, hashedWeights(m.Params()), tokens, batch,
			func(params []program.Value, ids program.Value) []program.Value {
				var calls map[string]*program.Call
				if attach {
					calls = byFactors(t, m, batch, context)
				}
				_, gradients := lossAndGradients(m, params, ids, calls)
				return gradients
			})
	}
	for _, s := range m.ActivationSites(batch, context) {
		for _, name := range s.Feeds {
			scaled[name] = true
		}
	}
	want, got := run(false), run(true)
	limit := 1e-5
	if precision == device.BFloat16 {
		limit = 0.03
	}
	for i, p := range m.Params() {
		if scaled[p.Name] {
			rows, columns := powers(p.Dims[0]), powers(p.Dims[1])
			for j := range want[i] {
				want[i][j] *= rows[j/p.Dims[1]] * columns[j%p.Dims[1]]
			}
		}
		if d := engine.Distance(got[i], want[i]); !(d < limit) {
			t.Errorf("gradient of %s: the relative difference is %.2g, want less than %g", p.Name, d, limit)
		}
	}
}

// byFactors returns quantizers of the backward pass that multiply operands by factors of outputs
// and inputs.
func byFactors(t *testing.T, m Model, batch, context int) map[string]*program.Call {
	calls := map[string]*program.Call{}
	add := func(product sdk.Product, role sdk.Role, name string, inverse bool, axis int, dims ...int) {
		f := powers(dims[axis])
		table := make([]float64, len(f))
		for i, v := range f {
			if table[i] = float64(v); inverse {
				table[i] = 1 / table[i]
			}
		}
		shape := []int{1, 1}
		shape[axis] = dims[axis]
		site := network.OperandSite{Product: product, Role: role, Name: name}
		calls[site.String()] = callOf(t, dims[0], dims[1], func(x program.Value) program.Value {
			return x.Mul(x.Builder().Table(table, shape...))
		})
	}
	for _, s := range m.ActivationSites(batch, context) {
		for _, name := range s.Feeds {
			out, in := m.Params()[indexOf(t, m, name)].Dims[0], s.Width
			add(sdk.ProductInputGradient, sdk.RoleGradient, name, false, 1, s.Tokens, out)
			add(sdk.ProductInputGradient, sdk.RoleWeight, name, true, 1, in, out)
			add(sdk.ProductWeightGradient, sdk.RoleGradient, name, false, 0, out, s.Tokens)
		}
		add(sdk.ProductWeightGradient, sdk.RoleActivation, s.Name, false, 0, s.Width, s.Tokens)
	}
	return calls
}

// TestBackwardInCheckpoints checks that recomputed layers have the backward quantizers of their
// weights: gradients have the same bits as without recomputation.
func TestBackwardInCheckpoints(t *testing.T) {
	const batch, context = 2, 8
	tokens := hashedTokens(0, batch*(context+1), tiny.Vocab)
	run := func(recompute architecture.Recompute) [][]float32 {
		m := newLlama(tiny)
		m.Recompute = recompute
		return evaluate(t, m, hashedWeights(m.Params()), tokens, batch,
			func(params []program.Value, ids program.Value) []program.Value {
				_, gradients := lossAndGradients(m, params, ids, byFactors(t, m, batch, context))
				return gradients
			})
	}
	want := run(architecture.RecomputeNone)
	for _, recompute := range []architecture.Recompute{architecture.RecomputeAttention,
		architecture.RecomputeBlocks} {
		for i, got := range run(recompute) {
			if !slices.Equal(got, want[i]) {
				t.Errorf("%s: gradient %d differs", recompute, i)
			}
		}
	}
}
