package matrix

import (
	"errors"
	"fmt"
	"slices"

	"github.com/cage-qat/cage/host/tile"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/reference"
)

// segment is what is computed element by element between products.
type segment struct {
	p      *program.Program
	kernel *tile.Kernel
	// in and out are the values that its program has as inputs and outputs.
	in, out []program.ID
	// count is how often the program is executed: once, or for each matrix of stacks,
	// in which it then has that part of the values that is each's own.
	count int
	own   []bool // of the inputs; outputs are all
}

// segmentWriter writes the program of a segment.
type segmentWriter struct {
	*writer
	at     place
	count  int
	b      *program.Builder
	values map[program.ID]program.Value
	in     []program.ID
	own    []bool
}

// writeSegment writes what is computed at a place and needed elsewhere.
func (w *writer) writeSegment(at place) error {
	var out []program.ID
	for i := range w.p.Nodes {
		id := program.ID(len(w.p.Inputs) + i)
		if w.roles[id] == local && w.places[id] == at && w.leaves(id) {
			out = append(out, id)
		}
	}
	return w.segment(at, out)
}

// writeNumbers writes the outputs that are made of numbers of several segments.
func (w *writer) writeNumbers(level int) error {
	var out []program.ID
	for _, o := range w.p.Outputs {
		out = w.withNumber(out, o.Value)
	}
	return w.segment(place{level, 1}, out)
}

// segment writes the segment of the given results: over whole tensors if it can be, or
// over each matrix of stacks, of which each may have numbers of its own.
func (w *writer) segment(at place, out []program.ID) error {
	if len(out) == 0 {
		return nil
	}
	s, err := w.segmentOf(at, out, 1)
	var refused *tile.RefusedError
	if errors.As(err, &refused) {
		for _, id := range out {
			if shape := w.p.TypeOf(id).Shape; len(shape) == 3 && shape[0] > 1 {
				s, err = w.segmentOf(at, out, shape[0])
				break
			}
		}
	}
	if err != nil {
		return err
	}
	for _, id := range out {
		w.k.sizes[id] = w.p.TypeOf(id).Size()
	}
	w.k.steps = append(w.k.steps, step{segment: s})
	return nil
}

func (w *writer) segmentOf(at place, out []program.ID, count int) (*segment, error) {
	name := fmt.Sprintf("%s/%d.%d", w.p.Name, at.level, at.class)
	s := &segmentWriter{writer: w, at: at, count: count, b: program.NewBuilder(name), values: map[program.ID]program.Value{}}
	seen := map[program.ID]bool{}
	for _, id := range out {
		if err := s.declare(id, seen); err != nil {
			return nil, err
		}
	}
	for _, id := range out {
		if _, own, ok := s.item(id); !ok || count > 1 && !own {
			return nil, s.refuse(id, "it is no stack of %d", count)
		}
		s.b.Output(segmentName(id), s.value(id))
	}
	p, err := s.b.Build()
	if err != nil {
		return nil, err
	}
	if _, err := tile.Compile(p); err != nil {
		return nil, err
	}
	return &segment{p: p, in: s.in, out: out, count: count, own: s.own}, nil
}

func segmentName(id program.ID) string { return fmt.Sprint("value/", id) }

// compile names the inputs and outputs that the kernel's program has as they are named
// there: an output may be in the place of the input of the same name only.
func (s *segment) compile(k *Kernel) (err error) {
	p := *s.p
	p.Inputs, p.Outputs = slices.Clone(p.Inputs), slices.Clone(p.Outputs)
	for i, id := range s.in {
		if int(id) < len(k.p.Inputs) {
			p.Inputs[i].Name = k.p.Inputs[id].Name
		}
	}
	for i, id := range s.out {
		if o, ok := k.direct[id]; ok {
			p.Outputs[i].Name = k.p.Outputs[o].Name
		}
	}
	s.kernel, err = tile.Compile(&p)
	return err
}

// leaves reports whether a local value is needed outside of its segment.
func (w *writer) leaves(id program.ID) bool {
	if w.output(id) {
		return true
	}
	for _, u := range w.uses[id] {
		switch {
		case w.roles[u] == alias:
			if w.leaves(u) {
				return true
			}
		case w.roles[u] == made, w.places[u] != w.places[id]:
			return true
		}
	}
	return false
}

// item is the type that a value has in the program of the segment, and whether it is a
// part of the value.
func (s *segmentWriter) item(id program.ID) (t program.Type, own, ok bool) {
	t = s.p.TypeOf(id)
	switch {
	case s.count == 1 || t.Rank() == 0:
		return t, false, true
	case t.Shape[0] == s.count || t.Shape[0] == 1:
		return program.Type{DType: t.DType, Shape: t.Shape[1:]}, t.Shape[0] == s.count, true
	}
	return t, false, false
}

// here reports whether the segment computes a value itself. A matrix that becomes a
// stack under another shape comes from outside.
func (s *segmentWriter) here(id program.ID) bool {
	at := s.places[id]
	if s.roles[id] != alias {
		return s.roles[id] == local && (at == s.at || at.class == 0)
	}
	from := s.p.Node(id).Args[0]
	if s.count == 1 || s.scalar(id) {
		return true
	}
	_, _, ok := s.item(from)
	return ok && s.p.TypeOf(from).Shape[0] == s.p.TypeOf(id).Shape[0]
}

// declare declares the inputs that a value needs, which come before all operations.
func (s *segmentWriter) declare(id program.ID, seen map[program.ID]bool) error {
	if seen[id] {
		return nil
	}
	seen[id] = true
	t, own, ok := s.item(id)
	if !ok {
		return s.refuse(id, "it is no stack of %d", s.count)
	}
	if s.here(id) {
		n := s.p.Node(id)
		if s.count > 1 && (n.Op == program.OpBroadcast && !s.scalar(n.Args[0]) || slices.Contains(n.Attr.Axes, 0)) {
			return s.refuse(id, "it goes across a stack")
		}
		for _, a := range n.Args {
			if err := s.declare(a, seen); err != nil {
				return err
			}
		}
		return nil
	}
	if r := s.root(id); s.roles[r] == local && s.places[r] == s.at {
		return s.refuse(r, "it is computed where it becomes a stack of %d", s.count)
	}
	if t.DType != program.Float {
		return &tile.RefusedError{Program: s.p.Name, Value: fmt.Sprintf("%%%d", id), Reason: "it is no float, and not computed where it is used"}
	}
	if s.roles[id] == fixed {
		data, err := s.evaluate(id)
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(data, func(v float32) bool { return v != data[0] }) {
			return nil // value writes it
		}
		s.k.fixed[id], s.k.sizes[id] = data, int64(len(data))
	}
	s.in, s.own = append(s.in, s.root(id)), append(s.own, own)
	s.values[id] = s.b.Input(segmentName(id), t)
	return nil
}

// value is a value of the program in the segment's.
func (s *segmentWriter) value(id program.ID) program.Value {
	if v, ok := s.values[id]; ok {
		return v
	}
	n, v := s.p.Node(id), program.Value{}
	t, _, _ := s.item(id)
	if s.roles[id] == fixed {
		data, err := s.evaluate(id)
		if err == nil { // as it was when its inputs were declared
			v = s.b.Full(float64(data[0]), t.Shape...)
		}
	} else {
		args := make([]program.Value, len(n.Args))
		for i, a := range n.Args {
			args[i] = s.value(a)
		}
		v = s.b.Apply(n.Op, s.attributes(n), t, args...)
	}
	s.values[id] = v
	return v
}

// attributes are those of a node for one matrix of a stack.
func (s *segmentWriter) attributes(n *program.Node) program.Attr {
	if s.count == 1 {
		return n.Attr
	}
	a := n.Attr
	a.Axes = slices.Clone(a.Axes)
	for i := range a.Axes {
		a.Axes[i]--
	}
	return a
}

// evaluate computes a value that depends on no input.
func (w *plan) evaluate(id program.ID) ([]float32, error) {
	b := program.NewBuilder("constant")
	values := map[program.ID]program.Value{}
	var value func(id program.ID) program.Value
	value = func(id program.ID) program.Value {
		if v, ok := values[id]; ok {
			return v
		}
		n := w.p.Node(id)
		args := make([]program.Value, len(n.Args))
		for i, a := range n.Args {
			args[i] = value(a)
		}
		values[id] = b.Apply(n.Op, n.Attr, n.Type, args...)
		return values[id]
	}
	b.Output("value", value(id))
	p, err := b.Build()
	if err != nil {
		return nil, err
	}
	out, err := reference.RunArgs(p)
	if err != nil {
		return nil, err
	}
	data := make([]float32, len(out[0].Floats))
	for i, v := range out[0].Floats {
		data[i] = float32(v)
	}
	return data, nil
}
