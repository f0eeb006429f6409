package engine

import (
	"slices"

	"github.com/gomlx/gomlx/core/graph"
)

// Again returns bitwise copies of inputs from which a backward pass can compute values of the
// forward pass again: they become available only after dy, and those that were gathered from the
// rows of all replicas are gathered again. Without this, a device might merge both computations or
// do the second early, and no memory would be saved (Chen et al., 2016). The CPU device computes
// models by plans, and waits for nothing in graphs.
func Again(dy *graph.Node, inputs []*graph.Node) []*graph.Node {
	rows, gather := ungather(inputs)
	again := slices.Clone(rows)
	if !OnCPU(dy.Graph()) {
		copy(again, graph.OptimizationBarriers(append(slices.Clone(rows), dy)...))
		for i, node := range again {
			CopyNotes(node, rows[i])
		}
	}
	return gather(again)
}
