package engine

import (
	"slices"

	"github.com/cage-qat/cage/host/compute/graph"
)

// ForRecompute returns bitwise copies of inputs from which a backward pass can compute values of
// the forward pass again: they become available only after dy, and those that were gathered from
// the rows of all replicas are gathered again. Without this, a device might merge both
// computations or do the second early, and no memory would be saved (Chen et al., 2016).
func ForRecompute(dy *graph.Node, inputs []*graph.Node) []*graph.Node {
	rows, gather := ungather(inputs)
	again := graph.Barrier(append(slices.Clone(rows), dy)...)[:len(rows)]
	for i, node := range again {
		graph.CopyNotes(node, rows[i])
	}
	return gather(again)
}
