package engine

import (
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

// ungather replaces all-gathered inputs by their local shards, and returns a function that gathers
// the shards again.
func ungather(inputs []*graph.Node) (rows []*graph.Node, gather func([]*graph.Node) []*graph.Node) {
	notes := make([]gathered, len(inputs))
	rows = append(rows, inputs...)
	for i, in := range inputs {
		if note, ok := graph.NoteOf[gathered](in); ok {
			notes[i], rows[i] = note, note.rows
		}
	}
	return rows, func(in []*graph.Node) []*graph.Node {
		whole := append([]*graph.Node(nil), in...)
		for i, note := range notes {
			if note.rows != nil {
				whole[i] = GatherOperand(in[i], note.rounded)
			}
		}
		return whole
	}
}
