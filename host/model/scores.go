package model

import (
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"
)

// Scored are sequences of which some tokens are asked for. A row has padding behind its sequence, of any valid ids.
type Scored struct {
	Tokens          *graph.Node // ids, int32 [batch, length]
	Lengths         *graph.Node // tokens of each row that are no padding, int32 [batch]
	Places, Targets *graph.Node // ids, and the tokens behind which they are asked for, as places in Tokens, int32 [n]
}

// Scores implements [Language]. Logits are computed at the places alone.
func (m *transformer) Scores(params []*graph.Node, s Scored, q ActivationQuantizer) (logProbs, likeliest *graph.Node) {
	m.checkParams(params)
	batch, length := s.Tokens.Shape().Dim(0), s.Tokens.Shape().Dim(1)
	g := s.Tokens.Graph()
	place := graph.Iota(g, shapes.Make(dtypes.Int32, batch, length), 1)
	used := graph.LessThan(place, graph.BroadcastToDims(graph.InsertAxes(s.Lengths, 1), batch, length))
	segments := graph.AddScalar(graph.ConvertDType(used, dtypes.Int32), Padding)
	r := newRope(g, m.Settings, batch, length, nil) // padding is behind all that counts: no token sees it
	h := m.blocks(params, s.Tokens, r, q.withoutPadding(segments), func(_ int, block func() *graph.Node) *graph.Node { return block() })
	targets := clampIDs(s.Targets, m.Vocab)
	h, head := graph.Gather(h, graph.InsertAxes(s.Places, -1)), m.head(params)
	likeliest = graph.Equal(graph.ArgMax(linear(h, head), -1, dtypes.Int32), targets)
	return graph.Neg(crossEntropy(h, head, targets)), likeliest
}
