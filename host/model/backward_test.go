package model

import (
	"math"
	"slices"
	"testing"

	"github.com/gomlx/gomlx/core/graph"

	"github.com/cage-qat/cage/host/compute/device"
	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/model/architecture"
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
			func(params []*graph.Node, ids *graph.Node) []*graph.Node {
				for _, s := range m.ActivationSites(batch, context) {
					for _, name := range s.Feeds {
						w := params[indexOf(t, m, name)]
						out, in := w.Shape().Dim(0), w.Shape().Dim(1)
						if scaled[name] = true; attach {
							byFactors(t, out, in, batch*context).AttachTo(w)
						}
					}
				}
				loss := m.Loss(params, ids, nil)
				return graph.Gradient(loss, params...)
			})
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

// byFactors returns a Backward that multiplies operands by factors of outputs and inputs.
func byFactors(t *testing.T, out, in, tokens int) Backward {
	times := func(x *graph.Node, inverse bool, axis int, dims ...int) *graph.Node {
		if !slices.Equal(x.Shape().Dimensions, dims) {
			t.Errorf("an operand has shape %s, want %v", x.Shape(), dims)
		}
		f := powers(dims[axis])
		for i := range f {
			if inverse {
				f[i] = 1 / f[i]
			}
		}
		shape := []int{1, 1}
		shape[axis] = dims[axis]
		return graph.Mul(x, engine.Constant(x.Graph(), f, shape...))
	}
	return Backward{
		InputGradient: Operands{
			Gradient: func(dy *graph.Node) *graph.Node { return times(dy, false, 1, tokens, out) },
			Other:    func(w *graph.Node) *graph.Node { return times(w, true, 1, in, out) },
		},
		WeightGradient: Operands{
			Gradient: func(dy *graph.Node) *graph.Node { return times(dy, false, 0, out, tokens) },
			Other:    func(x *graph.Node) *graph.Node { return times(x, false, 0, in, tokens) },
		},
	}
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
			func(params []*graph.Node, ids *graph.Node) []*graph.Node {
				for _, s := range m.ActivationSites(batch, context) {
					for _, name := range s.Feeds {
						w := params[indexOf(t, m, name)]
						byFactors(t, w.Shape().Dim(0), w.Shape().Dim(1), batch*context).AttachTo(w)
					}
				}
				return graph.Gradient(m.Loss(params, ids, nil), params...)
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
