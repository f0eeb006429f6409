package engine

import (
	"slices"

	"github.com/cage-qat/cage/host/compute/graph"
	"github.com/cage-qat/cage/host/compute/shapes"
)

// gathered is the note that [GatherOperand] attaches to its result.
type gathered struct {
	rows    *graph.Node
	rounded bool
}

// GatherOperand is [Gather] of a tensor that a backward pass gathers again ([ForRecompute]), so
// that it is not kept in between. If rounded is set, the values are transferred in bfloat16, for
// products that round to it anyway.
func GatherOperand(rows *graph.Node, rounded bool) *graph.Node {
	part := rows
	if rounded {
		part = graph.ConvertDType(part, shapes.BFloat16)
	}
	whole := Gather(part)
	if rounded {
		whole = graph.ConvertDType(whole, shapes.Float32)
	} else {
		whole = graph.Copy(whole) // with a note of its own
	}
	graph.Note(whole, gathered{rows, rounded})
	return whole
}

// ForRecompute returns bitwise copies of inputs from which a backward pass can compute values of
// the forward pass again: they become available only after dy, and those that were gathered from
// the rows of all replicas are gathered again. Without this, a device might merge both
// computations or do the second early, and no memory would be saved (Chen et al., 2016).
func ForRecompute(dy *graph.Node, inputs []*graph.Node) []*graph.Node {
	rows := slices.Clone(inputs) // of the gathered inputs
	for i, in := range inputs {
		if note, ok := graph.NoteOf[gathered](in); ok {
			rows[i] = note.rows
		}
	}
	again := slices.Clone(graph.Barrier(append(slices.Clone(rows), dy)...)[:len(rows)])
	for i, node := range again {
		graph.CopyNotes(node, rows[i])
		if note, ok := graph.NoteOf[gathered](inputs[i]); ok {
			again[i] = GatherOperand(node, note.rounded)
		}
	}
	return again
}
