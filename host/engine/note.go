package engine

import "github.com/gomlx/gomlx/core/graph"

// Note keeps something that is known of a node, for those who use the node later in the same graph. A node has one note.
// Graphs that no device builds keep none.
func Note(n *graph.Node, what any) {
	if r, ok := n.Graph().Backend().(*recording); ok {
		if r.notes == nil {
			r.notes = map[*graph.Node]any{}
		}
		r.notes[n] = what
	}
}

// NoteOf returns what is known of a node, nil for nothing.
func NoteOf(n *graph.Node) any {
	if r, ok := n.Graph().Backend().(*recording); ok {
		return r.notes[n]
	}
	return nil
}
