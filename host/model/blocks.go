package model

import (
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/support/exceptions"

	"github.com/cage-qat/cage/host/model/architecture"
)

// A Blockwise model is a [Language] model that can be computed one block at a time, so that only the parameters of one
// block need be in memory. A residual stream goes through all blocks; it begins with the rows of the embedding, which
// is the first of [Model.Params].
type Blockwise interface {
	Language

	// Blocks returns the number of blocks.
	Blocks() int

	// BlockParams lists the parameters of a block, in the order of Params.
	BlockParams(block int) []architecture.Param

	// BlockSites lists the activation sites of a block, a part of ActivationSites.
	BlockSites(block, batch, context int) []ActivationSite

	// Block computes a block for whole sequences, from their first token on. It maps the residual stream x that enters
	// the block, [batch·context, width], to the one that leaves it. params are the values of BlockParams. segments are
	// those of the documents in each sequence, [batch, context], nil where each is one document; see [Padding].
	Block(block int, params []*graph.Node, x, segments *graph.Node, batch, context int, q ActivationQuantizer) *graph.Node
}

var _ Blockwise = (*transformer)(nil)

// Blocks implements [Blockwise].
func (m *transformer) Blocks() int { return m.Layers }

// BlockParams implements [Blockwise].
func (m *transformer) BlockParams(block int) []architecture.Param {
	m.checkBlock(block)
	size := len(m.Settings.BlockParams(block))
	return m.params[1+block*size : 1+(block+1)*size]
}

// BlockSites implements [Blockwise].
func (m *transformer) BlockSites(block, batch, context int) []ActivationSite {
	m.checkBlock(block)
	sites := m.blockSites(block, batch*context)
	return sites[:]
}

func (m *transformer) checkBlock(block int) {
	if block < 0 || block >= m.Layers {
		exceptions.Panicf("%s: there is no block %d: there are %d", m.Kind, block, m.Layers)
	}
}

// Block implements [Blockwise].
func (m *transformer) Block(block int, params []*graph.Node, x, segments *graph.Node, batch, context int, q ActivationQuantizer) *graph.Node {
	if want := m.BlockParams(block); len(params) != len(want) {
		exceptions.Panicf("%s: got %d parameters of a block, want %d", m.Kind, len(params), len(want))
	}
	r := newRope(x.Graph(), m.Settings, batch, context, segments)
	return m.block(m.Settings, x, params, m.blockSites(block, batch*context), r, q.withoutPadding(segments))
}
