package engine

import "github.com/gomlx/gomlx/core/graph"

// Note attaches a piece of information to a node, for code that uses the node later in the same graph. A node has one
// note. Graphs that are not built by a device keep none.
func Note(n *graph.Node, what any) {
	if r, ok := n.Graph().Backend().(*recording); ok {
		if r.notes == nil {
			r.notes = map[*graph.Node]any{}
		}
		r.notes[n] = what
	}
}

// NoteOf returns the note attached to a node; nil if there is none.
func NoteOf(n *graph.Node) any {
	if r, ok := n.Graph().Backend().(*recording); ok {
		return r.notes[n]
	}
	return nil
}
