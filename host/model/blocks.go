package model

import (
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/support/exceptions"
)

// A Blockwise model is a [Language] model that can be computed one block after the other, so that no more than the
// parameters of one need be at hand: a residual stream that begins with the rows of the embedding, the first of [Params],
// goes through all blocks.
type Blockwise interface {
	Language

	// Blocks is the number of blocks.
	Blocks() int

	// BlockParams lists the parameters of a block, in the order of Params.
	BlockParams(block int) []Param

	// BlockSites lists those of ActivationSites that are in a block.
	BlockSites(block, batch, context int) []ActivationSite

	// Block computes a block of whole sequences from their first token on: from the residual stream x in front of it,
	// [batch·context, width], to that behind it, with the values of BlockParams.
	Block(block int, params []*graph.Node, x *graph.Node, batch, context int, q ActivationQuantizer) *graph.Node
}

var _ Blockwise = (*transformer)(nil)

// Blocks implements [Blockwise].
func (m *transformer) Blocks() int { return m.Layers }

// BlockParams implements [Blockwise].
func (m *transformer) BlockParams(block int) []Param {
	m.checkBlock(block)
	size := len(m.blockParams(m.Settings, layerPrefix(block)))
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
func (m *transformer) Block(block int, params []*graph.Node, x *graph.Node, batch, context int, q ActivationQuantizer) *graph.Node {
	if want := m.BlockParams(block); len(params) != len(want) {
		exceptions.Panicf("%s: got %d parameters of a block, want %d", m.Kind, len(params), len(want))
	}
	r := newRope(x.Graph(), m.Settings, batch, context, nil)
	return m.block(m.Settings, x, params, m.blockSites(block, batch*context), r, q)
}
