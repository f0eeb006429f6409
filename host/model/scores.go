package model

import (
	"math"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/support/exceptions"

	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/model/architecture"
)

// Scored are sequences some of whose tokens are to be scored. Rows are padded at the end with any valid ids.
type Scored struct {
	Tokens          *graph.Node // ids, int32 [batch, length]
	Lengths         *graph.Node // number of tokens in each row before the padding, int32 [batch]
	Places, Targets *graph.Node // Targets are ids, Places the flat indices in Tokens of the tokens before them; int32 [n]

	// Positions and Parts, int32 [batch, length], are nil if each row is one sequence. Otherwise a row is a context,
	// which is part 0, and continuations of it, each of which is a part of its own: a token sees the context and the
	// earlier tokens of its part, and has the position that it has in that sequence. This works only in graphs in
	// float32.
	Positions, Parts *graph.Node
}

// Scores implements [Language]. Logits are computed only at the places asked for.
func (m *transformer) Scores(params []*graph.Node, s Scored, q ActivationQuantizer) (logProbs, likeliest *graph.Node) {
	m.checkParams(params)
	batch, length := s.Tokens.Shape().Dim(0), s.Tokens.Shape().Dim(1)
	g := s.Tokens.Graph()
	place := graph.Iota(g, shapes.Make(dtypes.Int32, batch, length), 1)
	used := graph.LessThan(place, graph.BroadcastToDims(graph.InsertAxes(s.Lengths, 1), batch, length))
	segments := graph.AddScalar(graph.ConvertDType(used, dtypes.Int32), Padding)
	r := newRope(g, m.Settings, batch, length, nil) // padding is behind all that counts: no token sees it
	if s.Parts != nil {
		r.shareContext(m.Settings, s.Positions, s.Parts)
	}
	h := m.blocks(params, s.Tokens, r, q.withoutPadding(segments), func(_ int, block func() *graph.Node) *graph.Node { return block() })
	return m.scored(graph.Gather(h, graph.InsertAxes(s.Places, -1)), m.head(params), clampIDs(s.Targets, m.Vocab))
}

// scored returns the log-probabilities of targets behind hidden states h [n, width], and whether each is the likeliest. It
// computes a part of them after the other, because logits take much memory: 4 bytes for each target and token.
func (m *transformer) scored(h, head, targets *graph.Node) (logProbs, likeliest *graph.Node) {
	const part = 256
	var probs, best []*graph.Node
	for from := 0; from < targets.Shape().Dim(0); from += part {
		to := min(from+part, targets.Shape().Dim(0))
		h, targets := graph.Slice(h, graph.AxisRange(from, to)), graph.Slice(targets, graph.AxisRange(from, to))
		best = append(best, graph.Equal(graph.ArgMax(linear(h, head), -1, dtypes.Int32), targets))
		probs = append(probs, graph.Neg(crossEntropy(1, h, head, targets)))
	}
	return graph.Concatenate(probs, 0), graph.Concatenate(best, 0)
}

// shareContext replaces the tables and the mask by those of rows that share a context; see [Scored].
func (r *rope) shareContext(s architecture.Settings, positions, parts *graph.Node) {
	if r.core != nil {
		exceptions.Panicf("sequences that share a context are scored in float32 only")
	}
	g := parts.Graph()
	places := graph.Reshape(positions, -1, 1)
	table := func(f func(float64) float64, factor float64) *graph.Node {
		values := s.ByPosition(r.context, func(angle float64) float64 { return factor * f(angle) })
		rows := graph.Gather(engine.Constant(g, values, r.context, r.size/2), places)
		return graph.Reshape(transposed(rows), 1, r.size/2, r.batch*r.context)
	}
	scale := 1 / math.Sqrt(float64(r.size))
	r.turn = rotation{table(math.Cos, 1), table(math.Sin, 1)}
	r.turnScaled = rotation{table(math.Cos, scale), table(math.Sin, scale)}
	context := graph.Equal(parts, graph.ScalarZero(g, parts.DType()))
	r.hide(graph.LogicalOr(sameDocument(parts), graph.BroadcastToDims(graph.InsertAxes(context, 1), r.batch, r.context, r.context)))
}
