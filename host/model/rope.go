package model

import (
	"math"

	"github.com/gomlx/gomlx/core/graph"

	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/model/architecture"
)

// A rope holds what the attention layers of one graph share: shapes, the tables of the rotary position embedding (Su et
// al., 2021) and the causal mask.
//
// Two features of a head, which its pairing names, are the coordinates of a point that is rotated by the angle
// position·frequency. By feature, the layers here keep first coordinates and second coordinates in tensors of their own, so that a
// rotation is four products and two sums of whole tensors; scores do not depend on the order of features within a head.
type rope struct {
	batch, context, heads, keyHeads, size int // size: features of a head
	pairing                               architecture.Pairing

	// Tables of shape [1, size/2, batch·context], and [1, context, 1, size/2] where there is a core.
	turn, turnScaled rotation    // turnScaled is for queries: it has the factor 1/√size of the scores
	mask             *graph.Node // [1 or batch, 1, context, context]: 0 where a query sees a key, −∞ where not

	core   attentionCore // of attention by position; nil: by feature
	cached *cached       // of attention to what caches hold; nil: to the tokens at hand
}

// newRope makes what attention needs in the way that is best for the graph's device.
// segments are those of the documents in each row, [batch, context], nil for one.
func newRope(g *graph.Graph, s architecture.Settings, batch, context int, segments *graph.Node) *rope {
	if core := chooseCore(g, s, context, segments); core != nil {
		return newRopeByPosition(g, s, batch, context, core)
	}
	r := newRopeByFeature(g, s, batch, context)
	if segments != nil {
		r.hide(sameDocument(segments))
	}
	return r
}

// hide leaves in the mask what a query may see, [batch, queries, keys].
func (r *rope) hide(seen *graph.Node) {
	dims := []int{r.batch, 1, r.context, r.context}
	hidden := graph.Scalar(seen.Graph(), r.mask.DType(), math.Inf(-1))
	r.mask = graph.Where(graph.InsertAxes(seen, 1), graph.BroadcastToDims(r.mask, dims...), graph.BroadcastToDims(hidden, dims...))
}

// rope is newRope without the tables.
func headsOf(s architecture.Settings, batch, context int, core attentionCore) *rope {
	return &rope{batch: batch, context: context, heads: s.Heads, keyHeads: s.KVHeads, size: s.HeadSize, pairing: s.RopePairs, core: core}
}

func newRopeByPosition(g *graph.Graph, s architecture.Settings, batch, context int, core attentionCore) *rope {
	r := headsOf(s, batch, context, core)
	table := func(f func(float64) float64) *graph.Node {
		return engine.Constant(g, s.ByPosition(context, f), 1, context, 1, r.size/2)
	}
	r.turn = rotation{table(math.Cos), table(math.Sin)}
	return r
}

func newRopeByFeature(g *graph.Graph, s architecture.Settings, batch, context int) *rope {
	r := headsOf(s, batch, context, nil)
	frequencies := s.RopeFrequencies()
	table := func(f func(float64) float64, factor float64) *graph.Node {
		values := make([]float32, 0, r.size/2*batch*context)
		for _, frequency := range frequencies {
			for range batch {
				for position := range context {
					values = append(values, float32(factor*f(float64(position)*frequency)))
				}
			}
		}
		return engine.Constant(g, values, 1, r.size/2, batch*context)
	}
	scale := 1 / math.Sqrt(float64(r.size))
	r.turn = rotation{table(math.Cos, 1), table(math.Sin, 1)}
	r.turnScaled = rotation{table(math.Cos, scale), table(math.Sin, scale)}
	r.mask = causalMask(g, context)
	return r
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
