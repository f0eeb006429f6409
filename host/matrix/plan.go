package matrix

import (
	"slices"

	"github.com/cage-qat/cage/sdk/program"
)

// role says how a value comes about.
type role uint8

const (
	fromInput role = iota
	// fixed depends on no input.
	fixed
	// local is computed element by element, or folded, in a segment.
	local
	// alias is another value under another shape.
	alias
	// made by a product or a transposition, which read and write whole tensors.
	made
)

// place is when and where a value is computed: the products of a level come before its
// segments, of which there is one for each number of elements.
type place struct {
	level int
	class int64 // elements of the segment's tensors; 0 for what any segment may compute for itself
}

// plan puts the values of a program in their places.
type plan struct {
	p      *program.Program
	roles  []role
	places []place
	uses   [][]program.ID // of each value, by the values that are computed from it
}

func newPlan(p *program.Program) *plan {
	n := p.NumValues()
	w := &plan{p: p, roles: make([]role, n), places: make([]place, n), uses: make([][]program.ID, n)}
	for i := range p.Nodes {
		id := program.ID(len(p.Inputs) + i)
		node := &p.Nodes[i]
		w.roles[id] = w.roleOf(node)
		w.places[id] = w.placeOf(node, w.roles[id])
		for _, a := range node.Args {
			w.uses[a] = append(w.uses[a], id)
		}
	}
	w.delay()
	return w
}

func (w *plan) roleOf(n *program.Node) role {
	if !slices.ContainsFunc(n.Args, func(a program.ID) bool { return w.roles[a] != fixed }) {
		return fixed
	}
	switch n.Op {
	case program.OpDot, program.OpTranspose:
		return made
	case program.OpReshape:
		return alias
	}
	return local
}

// scalar reports whether a value has one element.
func (w *plan) scalar(id program.ID) bool { return w.p.TypeOf(id).Size() == 1 }

func (w *plan) placeOf(n *program.Node, r role) place {
	at := place{}
	for _, a := range n.Args {
		at.level = max(at.level, w.places[a].level)
	}
	switch r {
	case fixed:
		return place{}
	case made:
		at.level++
		return at
	case alias:
		return w.places[n.Args[0]]
	}
	at.class = w.classOf(n, at.level)
	for _, a := range n.Args { // a scalar that another segment of the level computes comes too late
		if v := w.places[a]; v.level == at.level && v.class != 0 && v.class != at.class {
			at.level++
			if n.Type.Size() == 1 {
				at.class = w.classOf(n, at.level)
			}
			break
		}
	}
	return at
}

// classOf is the number of elements of the segment that computes a local value: those
// of the tensors that it reads. A scalar that is made of scalars belongs to where the
// last of them is computed.
func (w *plan) classOf(n *program.Node, level int) int64 {
	class := int64(0)
	for _, a := range n.Args {
		switch v := w.places[a]; {
		case !w.scalar(a):
			return max(w.p.TypeOf(a).Size(), v.class)
		case v.level == level:
			class = max(class, v.class)
		}
	}
	if n.Type.Size() > 1 {
		return n.Type.Size()
	}
	return class
}

// delay puts off what is made of inputs until it is needed: a product of a parameter
// with a number need not be kept while matrices are multiplied.
func (w *plan) delay() {
	for i := len(w.p.Nodes) - 1; i >= 0; i-- {
		id, n := program.ID(len(w.p.Inputs)+i), &w.p.Nodes[i]
		if w.roles[id] != local || n.Type.Size() == 1 || w.output(id) || len(w.uses[id]) == 0 {
			continue
		}
		if slices.ContainsFunc(n.Args, func(a program.ID) bool {
			return w.places[a].class != 0 && w.roles[a] != fromInput || w.roles[a] == made || w.roles[a] == alias
		}) {
			continue
		}
		level := -1
		for _, u := range w.uses[id] {
			if w.roles[u] != local || w.places[u].class != w.places[id].class {
				level = -1
				break
			}
			if level < 0 || w.places[u].level < level {
				level = w.places[u].level
			}
		}
		w.places[id].level = max(level, w.places[id].level)
	}
}

func (w *plan) output(id program.ID) bool {
	return slices.ContainsFunc(w.p.Outputs, func(o program.Output) bool { return o.Value == id })
}

// root is the value whose memory a value is.
func (w *plan) root(id program.ID) program.ID {
	for w.roles[id] == alias {
		id = w.p.Node(id).Args[0]
	}
	return id
}
