package engine

import (
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/gomlx/core/graph"
)

// gathered is the note that [GatherDifferentiable] attaches to its result.
type gathered struct {
	rows    *graph.Node
	rounded bool
}

// GatherDifferentiable is [Gather] with a gradient: a reduce-scatter of the adjoints. If rounded is
// set, the values are transferred in bfloat16, for products that round to it anyway. A [Checkpoint]
// with such an input gathers it itself, and again in the backward pass, so that the whole tensor is
// not kept in between.
func GatherDifferentiable(rows *graph.Node, rounded bool) *graph.Node {
	part := rows
	if rounded {
		part = graph.ConvertDType(part, dtypes.BFloat16)
	}
	whole := Gather(part)
	if rounded {
		whole = graph.ConvertDType(whole, dtypes.Float32)
	}
	whole = Custom(whole, []*graph.Node{rows}, func(dy *graph.Node) []*graph.Node {
		return []*graph.Node{Rows(ScatterSum(dy))}
	})
	Note(whole, gathered{rows, rounded})
	return whole
}

// ungather replaces all-gathered inputs by their local shards, and returns a function that gathers
// the shards again.
func ungather(inputs []*graph.Node) (rows []*graph.Node, gather func([]*graph.Node) []*graph.Node) {
	notes := make([]gathered, len(inputs))
	rows = append(rows, inputs...)
	for i, in := range inputs {
		if note, ok := NoteOf[gathered](in); ok {
			notes[i], rows[i] = note, note.rows
		}
	}
	return rows, func(in []*graph.Node) []*graph.Node {
		whole := append([]*graph.Node(nil), in...)
		for i, note := range notes {
			if note.rows != nil {
				whole[i] = GatherDifferentiable(in[i], note.rounded)
			}
		}
		return whole
	}
}
