package engine

import (
	"github.com/gomlx/compute"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"
)

// recording is a backend that keeps the builder of the one graph that is built on it.
type recording struct {
	compute.Backend
	builder compute.Builder // nil until the graph has a node
	// functions stand for the graph's kernels until it is compiled, and kernels has these by their names.
	functions map[kernelKey]*graph.Function
	kernels   map[string]Kernel
	notes     map[*graph.Node]any // see Note
	closures  int                 // those of loops so far
}

// Builder implements compute.Backend.
func (r *recording) Builder(name string) compute.Builder {
	r.builder = r.Backend.Builder(name)
	return r.builder
}

// pairDonated gives each donated input the first output of its shape that no input before it has: outputs by input.
func pairDonated(inputs []Spec, outputs []shapes.Shape) map[int]int {
	pairs := make(map[int]int)
	taken := make([]bool, len(outputs))
	for i, input := range inputs {
		if !input.Donated {
			continue
		}
		for j, output := range outputs {
			if !taken[j] && output.Equal(input.Shape) {
				pairs[i], taken[j] = j, true
				break
			}
		}
	}
	return pairs
}

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
