package model

import (
	"math"

	"github.com/gomlx/gomlx/core/graph"

	"github.com/cage-qat/cage/host/engine"
)

// A rope holds what the attention layers of one graph share: shapes, the tables of the rotary position embedding (Su et
// al., 2021) and the causal mask.
//
// Features 2i and 2i+1 of a head are the coordinates of a point that is rotated by the angle position·θ^(−2i/size). The
// layers here keep first coordinates and second coordinates in tensors of their own, so that a rotation is four
// products and two sums of whole tensors; scores do not depend on the order of features within a head.
type rope struct {
	batch, context, heads, size int // size: features of a head

	// Tables of shape [1, size/2, batch·context]. Those for queries include the factor 1/√size of the scores.
	cos, sin             *graph.Node
	cosScaled, sinScaled *graph.Node
	mask                 *graph.Node // [1, 1, context, context]: 0 where a query sees a key, −∞ where not
}

func newRope(g *graph.Graph, c LlamaConfig, batch, context int) *rope {
	size := c.Width / c.Heads
	r := &rope{batch: batch, context: context, heads: c.Heads, size: size}
	frequencies := ropeFrequencies(size, c.RopeTheta)
	scale := 1 / math.Sqrt(float64(size))
	table := func(f func(float64) float64, factor float64) *graph.Node {
		values := make([]float32, 0, size/2*batch*context)
		for _, frequency := range frequencies {
			for range batch {
				for position := range context {
					values = append(values, float32(factor*f(float64(position)*frequency)))
				}
			}
		}
		return engine.Constant(g, values, 1, size/2, batch*context)
	}
	r.cos, r.sin = table(math.Cos, 1), table(math.Sin, 1)
	r.cosScaled, r.sinScaled = table(math.Cos, scale), table(math.Sin, scale)
	r.mask = causalMask(g, context)
	return r
}

// ropeFrequencies returns the rotation per position of each pair, θ^(−2i/size) for i = 0 … size/2−1.
func ropeFrequencies(size int, theta float64) []float64 {
	frequencies := make([]float64, size/2)
	for i := range frequencies {
		frequencies[i] = math.Pow(theta, -2*float64(i)/float64(size))
	}
	return frequencies
}

// causalMask returns the mask that added to scores hides later keys from a query.
func causalMask(g *graph.Graph, context int) *graph.Node {
	values := make([]float32, context*context)
	for query := range context {
		for key := query + 1; key < context; key++ {
			values[query*context+key] = float32(math.Inf(-1))
		}
	}
	return engine.Constant(g, values, 1, 1, context, context)
}

// rotate turns the points (first, second), [heads, size/2, tokens] each, by the angles of the tables.
func rotate(first, second, cos, sin *graph.Node) (*graph.Node, *graph.Node) {
	return graph.Sub(graph.Mul(first, cos), graph.Mul(second, sin)),
		graph.Add(graph.Mul(first, sin), graph.Mul(second, cos))
}

// rotateBack is the adjoint of rotate: the rotation by the opposite angles.
func rotateBack(first, second, cos, sin *graph.Node) (*graph.Node, *graph.Node) {
	return graph.Add(graph.Mul(first, cos), graph.Mul(second, sin)),
		graph.Sub(graph.Mul(second, cos), graph.Mul(first, sin))
}
