package model

import (
	"math"
	"slices"

	"github.com/gomlx/gomlx/core/graph"

	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/model/architecture"
)

// attentionLayers holds the state that the attention layers of one graph share: shapes, the tables
// of the rotary position embedding (Su et al., 2021) and the attention core.
//
// The embedding rotates pairs of features of a head, selected by the pairing, by the angle
// position·frequency. Scores do not depend on the order of features within a head.
type attentionLayers struct {
	batch, context, heads, keyHeads, size int // size: features of a head
	pairing                               architecture.Pairing
	scores                                scores

	tables    rotationTables // of shape [1 or batch, context, 1, size/2]
	tablesOf  func(architecture.Settings) rotationTables
	coreOf    func(window int) attentionCore
	core      attentionCore
	window    int     // tokens that a query attends to; 0: all before it
	recompute bool    // in the backward pass
	cached    *cached // for attention to KV caches; nil: to the given tokens
}

// newAttentionLayers returns layers with the best core for the graph's device. segments holds the
// document numbers in each row, [batch, context]; nil means one document.
func newAttentionLayers(g *graph.Graph, s architecture.Settings, batch, context int,
	segments *graph.Node) *attentionLayers {
	r := withCore(s, batch, context, func(window int) attentionCore {
		return chooseCore(g, s, context, segments, window)
	})
	r.setTables(s, func(s architecture.Settings) rotationTables {
		table := func(f func(float64) float64) *graph.Node {
			return engine.Constant(g, s.ByPosition(context, f), 1, context, 1, r.size/2)
		}
		return rotationTables{table(math.Cos), table(math.Sin)}
	})
	return r
}

// setTables sets the tables of the model's positions, and how [attentionLayers.at] makes those of a
// layer.
func (r *attentionLayers) setTables(s architecture.Settings,
	of func(architecture.Settings) rotationTables) {
	made := map[[2]float64]rotationTables{} // by their RopeKey
	r.tablesOf = func(s architecture.Settings) rotationTables {
		t, ok := made[s.RopeKey()]
		if !ok {
			t = of(s)
			made[s.RopeKey()] = t
		}
		return t
	}
	r.tables = r.tablesOf(s)
}

// at returns the layers with the tables, window and core of one layer of the model.
func (r *attentionLayers) at(s architecture.Settings, layer int) *attentionLayers {
	other, length := *r, r.context
	if r.cached != nil {
		length = r.cached.length
	}
	other.window = s.LayerWindow(layer, length)
	other.core = r.coreOf(other.window)
	other.tables = r.tablesOf(s.LayerRope(layer))
	return &other
}

// withCore returns layers with the given core for each window, and without rotation tables.
func withCore(s architecture.Settings, batch, context int,
	coreOf func(window int) attentionCore) *attentionLayers {
	made := map[int]attentionCore{}
	once := func(window int) attentionCore {
		core, ok := made[window]
		if !ok {
			core = coreOf(window)
			made[window] = core
		}
		return core
	}
	return &attentionLayers{batch: batch, context: context, heads: s.Heads, keyHeads: s.KVHeads,
		size: s.HeadSize, pairing: s.RopePairs, scores: scoresOf(s), coreOf: once}
}

// rotationTables holds the cosines and sines of the angles by which pairs of features are rotated.
type rotationTables struct{ cos, sin *graph.Node }

// tablesAt returns the tables for positions below length, [batch·context, 1], in the shape
// [batch, context, 1, size/2].
func tablesAt(s architecture.Settings, length int, positions *graph.Node, batch,
	context int) rotationTables {
	pairs := s.HeadSize / 2
	table := func(f func(float64) float64) *graph.Node {
		all := engine.Constant(positions.Graph(), s.ByPosition(length, f), length, pairs)
		return graph.Reshape(graph.Gather(all, positions), batch, context, 1, pairs)
	}
	return rotationTables{table(math.Cos), table(math.Sin)}
}

// qkvParams are parameters of attention beside the weights of its projections; those that a model
// does not have are nil. A bias is added to queries, keys and values, and queries and keys are
// normalized before their rotation (Dehghani et al., 2023): over all heads of a token together if
// the gains are [heads·size], and per head if they are [size]. All are in the order of the
// features.
type qkvParams struct {
	bias       *graph.Node // [queries, keys and values]
	query, key *graph.Node // gains
	epsilon    float64
}

func (n qkvParams) nodes() []*graph.Node {
	return slices.DeleteFunc([]*graph.Node{n.bias, n.query, n.key},
		func(x *graph.Node) bool { return x == nil })
}

// with returns the parameters with other nodes, in the order of nodes.
func (n qkvParams) with(nodes []*graph.Node) qkvParams {
	for _, x := range []**graph.Node{&n.bias, &n.query, &n.key} {
		if *x != nil {
			*x, nodes = nodes[0], nodes[1:]
		}
	}
	return n
}

// addBias adds the bias, whose features have been brought to the order of those of x.
func (n qkvParams) addBias(x *graph.Node, order func(column *graph.Node) *graph.Node) *graph.Node {
	if n.bias == nil {
		return x
	}
	return graph.Add(x, graph.Reshape(order(graph.Reshape(n.bias, -1, 1)), 1, -1))
}

// biasAdjoint returns the adjoint of the bias from that of the projection, if there is a bias.
func (n qkvParams) biasAdjoint(
	d *graph.Node, order func(column *graph.Node) *graph.Node,
) []*graph.Node {
	if n.bias == nil {
		return nil
	}
	return []*graph.Node{graph.Reshape(order(graph.Reshape(graph.ReduceSum(d, 0), -1, 1)), -1)}
}

func sameOrder(x *graph.Node) *graph.Node { return x }

// normalize returns the normalized queries and keys [tokens, heads·size], whose features are in
// half-split order, and the function from the adjoints of the results to the adjoints of queries,
// keys and gains. Without gains it changes nothing.
func (n qkvParams) normalize(r *attentionLayers, query, key *graph.Node) (q, k *graph.Node,
	back func(dq, dk *graph.Node) (dQuery, dKey *graph.Node, dGains []*graph.Node)) {
	if n.query == nil {
		return query, key, func(dq, dk *graph.Node) (*graph.Node, *graph.Node, []*graph.Node) {
			return dq, dk, nil
		}
	}
	q, queryBack := r.normalize(query, n.query, n.epsilon)
	k, keyBack := r.normalize(key, n.key, n.epsilon)
	return q, k, func(dq, dk *graph.Node) (*graph.Node, *graph.Node, []*graph.Node) {
		dQuery, dQueryGain := queryBack(dq)
		dKey, dKeyGain := keyBack(dk)
		return dQuery, dKey, []*graph.Node{dQueryGain, dKeyGain}
	}
}

// normalize returns the RMSNorm of x [tokens, heads·size], and the function that computes its
// adjoints; see [rmsNorm] and [qkvParams].
func (r *attentionLayers) normalize(x, gain *graph.Node, epsilon float64) (
	y *graph.Node, back func(dy *graph.Node) (dx, dGain *graph.Node)) {
	// A row holds the features that are normalized together.
	rows := func(x *graph.Node) *graph.Node { return graph.Reshape(x, -1, gain.Shape().Dim(0)) }
	same := func(y *graph.Node) *graph.Node { return graph.Reshape(y, x.Shape().Dimensions...) }
	column := func(gain *graph.Node) *graph.Node { return graph.Reshape(gain, -1, 1) }
	y, rowsBack := normalizeRows(rows(x), graph.Reshape(r.toHalfSplit(column(gain)), -1),
		epsilon, nil)
	return same(y), func(dy *graph.Node) (*graph.Node, *graph.Node) {
		dx, dGain := rowsBack(rows(dy))
		return same(dx), graph.Reshape(r.fromHalfSplit(column(dGain)), -1)
	}
}
