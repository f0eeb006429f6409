package model

import (
	"math"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/support/exceptions"

	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/data/dataset"
	"github.com/cage-qat/cage/host/model/architecture"
)

// A Piece holds the next tokens of several sequences. KV caches hold the keys and values of the
// earlier tokens, so that each token is multiplied by the weights only once, however long its
// sequence is. All sequences end at the same position: shorter ones are left-padded with any valid
// ids.
type Piece struct {
	Tokens *graph.Node // ids, int32 [batch, n]
	Start  *graph.Node // position of the first of these tokens in the caches, int32 scalar
	First  *graph.Node // position at which each sequence begins, int32 [batch]
}

// CacheDims implements [Language]. Each block has one cache for rotated keys and one for values.
func (m *transformer) CacheDims(batch, length int) [][]int {
	var list [][]int
	for range 2 * m.Layers {
		list = append(list, []int{batch, m.KVHeads, length, m.HeadSize})
	}
	return list
}

// Decode implements [Language].
func (m *transformer) Decode(params []*graph.Node, piece Piece, caches []*graph.Node,
	q ActivationQuantizer) (logits *graph.Node, next []*graph.Node) {
	m.checkParams(params)
	if len(caches) != 2*m.Layers {
		exceptions.Panicf("%s: got %d caches, want %d", m.Kind, len(caches), 2*m.Layers)
	}
	batch, n := piece.Tokens.Shape().Dim(0), piece.Tokens.Shape().Dim(1)
	r := withCore(m.Settings, batch, n, func(int) attentionCore { return nil })
	c := m.newCached(piece, caches[0].Shape().Dim(2), r)
	r.cached = c
	h := m.blocks(params, piece.Tokens, r, q.zeroPadding(c.segments),
		func(layer int, block func() *graph.Node) *graph.Node {
			c.keys, c.values = caches[2*layer], caches[2*layer+1]
			x := block()
			next = append(next, c.keys, c.values)
			return x
		})
	last := graph.Slice(graph.Reshape(h, batch, n, m.Width), graph.AxisRange(), graph.AxisElem(n-1))
	return m.head(params).linear(graph.Reshape(last, batch, m.Width)), next
}

// cached holds the state that attention needs to append a piece to the KV caches.
type cached struct {
	start  *graph.Node
	length int // of the caches, in tokens
	// mask returns the mask of a window, [batch, 1, n, 1, length]: 0 where a query sees a key, else −∞
	mask         func(window int) *graph.Node
	segments     *graph.Node // [batch, n]: Padding before a sequence, 0 in it
	keys, values *graph.Node // caches of the current block, replaced by those with the piece
}

// newCached returns the state for a piece, and sets the tables of r for its positions.
func (m *transformer) newCached(piece Piece, length int, r *attentionLayers) *cached {
	g, n := piece.Tokens.Graph(), piece.Tokens.Shape().Dim(1)
	batch := piece.Tokens.Shape().Dim(0)
	position := graph.Add(graph.Iota(g, shapes.Make(dtypes.Int32, batch, n, length), 1),
		graph.BroadcastToDims(piece.Start, batch, n, length))
	key := graph.Iota(g, shapes.Make(dtypes.Int32, batch, n, length), 2)
	first := graph.BroadcastToDims(graph.Reshape(piece.First, batch, 1, 1), batch, n, length)
	// Padding attends to itself, because a softmax over no keys is NaN.
	seen := graph.LogicalAnd(graph.LessOrEqual(key, position), graph.GreaterOrEqual(key, first))
	shown, hidden := graph.Scalar(g, dtypes.Float32, 0), graph.Scalar(g, dtypes.Float32, math.Inf(-1))
	inside := graph.Reshape(graph.GreaterOrEqual(graph.Slice(position, graph.AxisRange(),
		graph.AxisRange(), graph.AxisElem(0)),
		graph.Slice(first, graph.AxisRange(), graph.AxisRange(), graph.AxisElem(0))), batch, n)
	// The tables for the piece's positions are rows of the tables for all positions.
	positions := graph.Add(graph.Iota(g, shapes.Make(dtypes.Int32, n, 1), 0),
		graph.BroadcastToDims(piece.Start, n, 1))
	r.setTables(m.Settings, func(s architecture.Settings) rotationTables {
		return tablesAt(s, length, positions, 1, n) // [1, n, 1, size/2]
	})
	masks := map[int]*graph.Node{} // by window
	mask := func(window int) *graph.Node {
		if made, ok := masks[window]; ok {
			return made
		}
		seen := seen
		if window > 0 {
			seen = graph.LogicalAnd(seen, inWindow(position, key, window))
		}
		seen = graph.LogicalOr(graph.Equal(key, position), seen)
		masks[window] = graph.Reshape(graph.Where(seen, graph.BroadcastToDims(shown, batch, n, length),
			graph.BroadcastToDims(hidden, batch, n, length)), batch, 1, n, 1, length)
		return masks[window]
	}
	return &cached{
		start: piece.Start, length: length, mask: mask,
		segments: graph.AddScalar(graph.ConvertDType(inside, dtypes.Int32), dataset.Padding),
	}
}

// attentionCached is like [attend], but also attends to the tokens in the caches, and has no
// gradient.
func attentionCached(x, w *graph.Node, more qkvParams, r *attentionLayers, sites blockSites,
	q ActivationQuantizer) *graph.Node {
	c := r.cached
	query, key, value := r.operands(x, w, more)
	query = r.quantize(query, sites[siteQuery], q)
	key, value = r.quantize(key, sites[siteKey], q), r.quantize(value, sites[siteValue], q)
	c.keys, c.values = c.appendTo(c.keys, key), c.appendTo(c.values, value)

	grouped := graph.Reshape(query, r.batch, r.context, r.keyHeads, r.heads/r.keyHeads, r.size)
	// [batch, key heads, n, group, length]
	products := engine.DotGeneral(grouped, []int{4}, []int{0, 2}, c.keys, []int{3}, []int{0, 1})
	weights := softmax(graph.Add(r.scores.of(products), c.mask(r.window)))
	// [batch, key heads, n, group, size]
	mixed := engine.DotGeneral(weights, []int{4}, []int{0, 1}, c.values, []int{2}, []int{0, 1})
	mixed = graph.TransposeAllAxes(mixed, 0, 2, 1, 3, 4)
	return graph.Reshape(mixed, r.batch*r.context, r.heads*r.size)
}

// appendTo writes keys or values [batch, n, key heads, size] to a cache. They are rounded like
// operands of products.
func (c *cached) appendTo(cache, x *graph.Node) *graph.Node {
	zero := graph.ScalarZero(cache.Graph(), dtypes.Int32)
	return graph.DynamicUpdateSlice(cache, engine.Rounded(graph.TransposeAllAxes(x, 0, 2, 1, 3)),
		[]*graph.Node{zero, zero, c.start, zero})
}

// Scored holds sequences some of whose tokens are to be scored. Rows are right-padded with any
// valid ids.
type Scored struct {
	Tokens  *graph.Node // ids, int32 [batch, length]
	Lengths *graph.Node // number of tokens in each row before the padding, int32 [batch]
	// Targets, int32 [n], are the ids to score, and Indices, int32 [n], the flat indices in Tokens
	// of the tokens before them.
	Indices, Targets *graph.Node

	// Positions and Parts, int32 [batch, length], are nil if each row is one sequence. Otherwise a
	// row is a context, which is part 0, and several continuations of it, each of which is a
	// separate part: a token attends to the context and the earlier tokens of its part, and its
	// position is counted in that sequence.
	Positions, Parts *graph.Node
}

// Scores implements [Language]. Logits are computed only at the requested positions.
func (m *transformer) Scores(params []*graph.Node, s Scored,
	q ActivationQuantizer) (logProbs, likeliest *graph.Node) {
	m.checkParams(params)
	batch, length := s.Tokens.Shape().Dim(0), s.Tokens.Shape().Dim(1)
	g := s.Tokens.Graph()
	position := graph.Iota(g, shapes.Make(dtypes.Int32, batch, length), 1)
	used := graph.LessThan(position, graph.BroadcastToDims(graph.InsertAxes(s.Lengths, 1), batch,
		length))
	segments := graph.AddScalar(graph.ConvertDType(used, dtypes.Int32), dataset.Padding)
	var r *attentionLayers // padding comes last: no other token sees it
	if s.Parts != nil {
		ofContext := graph.InsertAxes(graph.Equal(s.Parts, graph.ScalarZero(g, s.Parts.DType())), 1)
		ofContext = graph.BroadcastToDims(ofContext, batch, length, length)
		seen := graph.LogicalOr(sameDocument(s.Parts), ofContext)
		r = withCore(m.Settings, batch, length, func(window int) attentionCore {
			seen := seen
			if window > 0 {
				of := func(axis int) *graph.Node {
					return graph.BroadcastToDims(graph.InsertAxes(s.Positions, axis), batch, length, length)
				}
				seen = graph.LogicalAnd(seen, inWindow(of(2), of(1), window))
			}
			return maskedCore(scoresOf(m.Settings), func(x *graph.Node) *graph.Node {
				return maskScores(x, seen, 0)
			})
		})
		r.setTables(m.Settings, func(of architecture.Settings) rotationTables {
			return tablesAt(of, length, graph.Reshape(s.Positions, -1, 1), batch, length)
		})
	} else {
		r = newAttentionLayers(g, m.Settings, batch, length, nil)
	}
	h := m.blocks(params, s.Tokens, r, q.zeroPadding(segments),
		func(_ int, block func() *graph.Node) *graph.Node { return block() })
	h = graph.Gather(h, graph.InsertAxes(s.Indices, -1))
	return m.scoreTargets(h, m.head(params), clampIDs(s.Targets, m.Vocab))
}

// scoreTargets returns the log-probabilities of targets given hidden states h [n, width], and
// whether each is the likeliest. It computes them in chunks, as logits take much memory: 4 bytes
// for each target and vocabulary entry.
func (m *transformer) scoreTargets(h *graph.Node, head outputHead, targets *graph.Node) (
	logProbs, likeliest *graph.Node) {
	const chunk = 256
	var probs, best []*graph.Node
	for from := 0; from < targets.Shape().Dim(0); from += chunk {
		to := min(from+chunk, targets.Shape().Dim(0))
		h, targets := graph.Slice(h, graph.AxisRange(from, to)),
			graph.Slice(targets, graph.AxisRange(from, to))
		best = append(best, graph.Equal(graph.ArgMax(head.linear(h), -1, dtypes.Int32), targets))
		probs = append(probs, graph.Neg(crossEntropy(1, h, head, targets)))
	}
	return graph.Concatenate(probs, 0), graph.Concatenate(best, 0)
}
