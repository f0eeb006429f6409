package model

import (
	"math"

	"github.com/gomlx/gomlx/core/graph"

	"github.com/cage-qat/cage/host/engine"
)

// A rope holds what the attention layers of one graph share: shapes, the tables of the rotary position embedding (Su et
// al., 2021) and the causal mask.
//
// Two features of a head, which its pairing names, are the coordinates of a point that is rotated by the angle
// position·frequency. The layers here keep first coordinates and second coordinates in tensors of their own, so that a
// rotation is four products and two sums of whole tensors; scores do not depend on the order of features within a head.
type rope struct {
	batch, context, heads, keyHeads, size int // size: features of a head
	pairing                               Pairing

	// Tables of shape [1, size/2, batch·context], and [1, context, 1, size/2] where there is a core.
	turn, turnScaled rotation    // that for queries with the factor 1/√size of the scores
	mask             *graph.Node // [1, 1, context, context]: 0 where a query sees a key, −∞ where not

	core attentionCore // of attention by position; nil: by feature
}

// newRope makes what attention needs in the way that is best for the graph's device.
func newRope(g *graph.Graph, s shape, batch, context int) *rope {
	if core := chooseCore(g, s, context); core != nil {
		return newRopeByPosition(g, s, batch, context, core)
	}
	return newRopeByFeature(g, s, batch, context)
}

func newRopeByPosition(g *graph.Graph, s shape, batch, context int, core attentionCore) *rope {
	r := &rope{batch: batch, context: context, heads: s.heads, keyHeads: s.keyHeads, size: s.size(), pairing: s.pairing, core: core}
	frequencies := s.scaling.stretch(ropeFrequencies(r.size, s.theta))
	table := func(f func(float64) float64) *graph.Node {
		values := make([]float32, 0, context*r.size/2)
		for position := range context {
			for _, frequency := range frequencies {
				values = append(values, float32(f(float64(position)*frequency)))
			}
		}
		return engine.Constant(g, values, 1, context, 1, r.size/2)
	}
	r.turn = rotation{table(math.Cos), table(math.Sin)}
	return r
}

func newRopeByFeature(g *graph.Graph, s shape, batch, context int) *rope {
	size := s.size()
	r := &rope{batch: batch, context: context, heads: s.heads, keyHeads: s.keyHeads, size: size, pairing: s.pairing}
	frequencies := s.scaling.stretch(ropeFrequencies(size, s.theta))
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
	scale := 1 / math.Sqrt(float64(size))
	r.turn = rotation{table(math.Cos, 1), table(math.Sin, 1)}
	r.turnScaled = rotation{table(math.Cos, scale), table(math.Sin, scale)}
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

// stretch applies the rule to frequencies; without one they stay.
func (s *RopeScaling) stretch(frequencies []float64) []float64 {
	if s == nil {
		return frequencies
	}
	for i, f := range frequencies {
		periods := float64(s.Original) * f / (2 * math.Pi) // wavelengths in the original context
		share := min(1, max(0, (periods-s.Low)/(s.High-s.Low)))
		frequencies[i] = (1-share)*f/s.Factor + share*f
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

// points are features of all heads as first and second coordinates, [heads, size/2, tokens] each.
type points struct{ first, second *graph.Node }

// joined returns both coordinates, [heads, size, tokens].
func (p points) joined() *graph.Node { return graph.Concatenate([]*graph.Node{p.first, p.second}, 1) }

// split is the inverse of joined.
func split(x *graph.Node) points {
	half := x.Shape().Dim(1) / 2
	return points{graph.SliceAxis(x, 1, graph.AxisRange(0, half)), graph.SliceAxis(x, 1, graph.AxisRange(half))}
}

// rotation holds cosines and sines.
type rotation struct{ cos, sin *graph.Node }

// apply turns the points.
func (r rotation) apply(p points) points {
	return points{
		graph.Sub(graph.Mul(p.first, r.cos), graph.Mul(p.second, r.sin)),
		graph.Add(graph.Mul(p.first, r.sin), graph.Mul(p.second, r.cos)),
	}
}

// back is the adjoint of apply: the rotation by the opposite angles.
func (r rotation) back(p points) points {
	return points{
		graph.Add(graph.Mul(p.first, r.cos), graph.Mul(p.second, r.sin)),
		graph.Sub(graph.Mul(p.second, r.cos), graph.Mul(p.first, r.sin)),
	}
}
