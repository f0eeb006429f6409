package matrix

import (
	"fmt"
	"slices"

	"github.com/cage-qat/cage/host/tile"
	"github.com/cage-qat/cage/internal/guard"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/simplify"
)

// A Kernel is a compiled program. It is immutable: several runners may execute it at
// once, and several tensors may share it.
type Kernel struct {
	p     *program.Program
	steps []step
	// sizes are the elements of the values in memory, 0 for one that is nowhere.
	sizes  []int64
	fixed  map[program.ID][]float32
	direct map[program.ID]int // values that are computed in the memory of an output
	work   int64              // multiplications, about
}

// step is a part of a run. One of its fields is set.
type step struct {
	product *product
	swap    *swap
	segment *segment
	copied  *copied
	// spent are the values that no later step reads.
	spent []program.ID
}

// copied puts a value into an output.
type copied struct {
	from program.ID
	to   int
}

// Compile compiles p, which must be valid, or refuses it with a [*tile.RefusedError].
func Compile(p *program.Program) (k *Kernel, err error) {
	defer guard.Catch(executor, p.Name, &err)
	p, err = simplify.Program(p)
	if err != nil {
		return nil, err
	}
	w := &writer{plan: newPlan(p), k: &Kernel{p: p, sizes: make([]int64, p.NumValues()), fixed: map[program.ID][]float32{}, direct: map[program.ID]int{}}}
	for i, in := range p.Inputs {
		if in.Type.DType != program.Float {
			return nil, &tile.RefusedError{Program: p.Name, Value: fmt.Sprintf("input %q", in.Name), Reason: "it is no float"}
		}
		w.k.sizes[i] = in.Type.Size()
	}
	if !slices.ContainsFunc(p.Nodes, func(n program.Node) bool { return n.Op == program.OpDot }) {
		return nil, &tile.RefusedError{Program: p.Name, Value: "all of it", Reason: "it has no product of matrices"}
	}
	w.families = families(w.plan)
	if err := w.write(); err != nil {
		return nil, err
	}
	return w.k, nil
}

// Program returns the program as it is executed, with the inputs and outputs of the
// one that was compiled.
func (k *Kernel) Program() *program.Program { return k.p }

// writer writes a kernel.
type writer struct {
	*plan
	k        *Kernel
	families []family
	numbers  []program.ID // of no segment's own that one has written
}

func (w *writer) refuse(id program.ID, format string, args ...any) error {
	return &tile.RefusedError{Program: w.p.Name, Value: fmt.Sprintf("%%%d = %s", id, w.p.Node(id).Op), Reason: fmt.Sprintf(format, args...)}
}

func (w *writer) write() error {
	last := 0
	for _, at := range w.places {
		last = max(last, at.level)
	}
	for level := range last + 1 {
		if err := w.writeFactors(level); err != nil {
			return err
		}
		if err := w.writeMade(level); err != nil {
			return err
		}
		for _, class := range w.classes(level) {
			if err := w.writeSegment(place{level, class}); err != nil {
				return err
			}
		}
	}
	if err := w.writeNumbers(last + 1); err != nil {
		return err
	}
	if err := w.writeOutputs(); err != nil {
		return err
	}
	w.releases()
	return nil
}

// writeMade writes the products and transpositions of a level.
func (w *writer) writeMade(level int) error {
	for i := range w.p.Nodes {
		id := program.ID(len(w.p.Inputs) + i)
		if w.roles[id] != made || w.places[id].level != level {
			continue
		}
		s, err := w.made(id)
		if err != nil {
			return err
		}
		w.k.sizes[id] = w.p.TypeOf(id).Size()
		w.k.steps = append(w.k.steps, s)
	}
	return nil
}

// writeFactors writes the numbers that the products and transpositions of a level read,
// matrices of one element, where any segment would compute them for itself.
func (w *writer) writeFactors(level int) error {
	var out []program.ID
	for i := range w.p.Nodes {
		id := program.ID(len(w.p.Inputs) + i)
		if w.roles[id] != made || w.places[id].level != level {
			continue
		}
		for _, a := range w.p.Node(id).Args {
			out = w.withNumber(out, a)
		}
	}
	return w.segment(place{level, 1}, out)
}

// withNumber adds the root of a value to a list if it is a number of no segment's own
// that is not written yet.
func (w *writer) withNumber(list []program.ID, id program.ID) []program.ID {
	r := w.root(id)
	if w.roles[r] != local || w.places[r].class != 0 || slices.Contains(w.numbers, r) {
		return list
	}
	w.numbers = append(w.numbers, r)
	return append(list, r)
}

// classes lists the segments of a level, the smallest tensors first.
func (w *writer) classes(level int) []int64 {
	var list []int64
	for i, at := range w.places {
		if w.roles[i] == local && at.level == level && at.class > 1 && !slices.Contains(list, at.class) {
			list = append(list, at.class)
		}
	}
	slices.Sort(list)
	return list
}

// writeOutputs decides which outputs are computed in their place and copies the others
// there, first those that are inputs, which another output may overwrite.
func (w *writer) writeOutputs() error {
	inputs, err := w.copiedInputs()
	if err != nil {
		return err
	}
	var rest []step
	w.k.steps = append(w.k.steps, inputs...)
	for i, o := range w.p.Outputs {
		r := w.root(o.Value)
		if int(r) < len(w.p.Inputs) {
			continue
		}
		if w.roles[r] == fixed {
			return w.refuse(r, "it is constant")
		}
		if _, taken := w.k.direct[r]; !taken && w.inPlace(r, o.Name) {
			w.k.direct[r] = i
			continue
		}
		rest = append(rest, step{copied: &copied{r, i}})
	}
	w.k.steps = append(w.k.steps, rest...)
	for _, s := range w.k.steps {
		if s.segment != nil {
			if err := s.segment.compile(w.k); err != nil {
				return err
			}
		}
	}
	return nil
}

// copiedInputs copies the outputs that are inputs, each before its input is overwritten
// by another one.
func (w *writer) copiedInputs() ([]step, error) {
	var left []copied
	for i, o := range w.p.Outputs {
		if r := w.root(o.Value); int(r) < len(w.p.Inputs) {
			left = append(left, copied{r, i})
		}
	}
	var steps []step
	for len(left) > 0 {
		at := slices.IndexFunc(left, func(c copied) bool {
			over := program.ID(w.p.Input(w.p.Outputs[c.to].Name))
			return c.from == over || !slices.ContainsFunc(left, func(d copied) bool { return d.from == over })
		})
		if at < 0 {
			name := w.p.Outputs[left[0].to].Name
			return nil, &tile.RefusedError{Program: w.p.Name, Value: fmt.Sprintf("output %q", name), Reason: "inputs are exchanged"}
		}
		next := left[at]
		steps, left = append(steps, step{copied: &next}), slices.Delete(left, at, at+1)
	}
	return steps, nil
}

// inPlace reports whether value id may be computed in the memory of the input of the
// given name: no step reads the input afterwards, and in the same step only a segment,
// element by element.
func (w *writer) inPlace(id program.ID, name string) bool {
	input := program.ID(w.p.Input(name))
	written := false
	for i := range w.k.steps {
		s := &w.k.steps[i]
		writes := slices.Contains(s.writes(), id)
		if reads := input >= 0 && slices.Contains(s.reads(), input); reads && (written || writes && s.segment == nil) {
			return false
		}
		written = written || writes
	}
	return written
}

// releases notes after which step each value is not read any more.
func (w *writer) releases() {
	seen := map[program.ID]bool{}
	for i := len(w.k.steps) - 1; i >= 0; i-- {
		s := &w.k.steps[i]
		for _, id := range slices.Concat(s.reads(), s.writes()) {
			_, direct := w.k.direct[id]
			if seen[id] || direct || int(id) < len(w.p.Inputs) || w.k.fixed[id] != nil {
				continue
			}
			seen[id] = true
			s.spent = append(s.spent, id)
		}
	}
}

// reads lists the values whose memory a step reads.
func (s *step) reads() []program.ID {
	switch {
	case s.product != nil:
		return []program.ID{s.product.a.value, s.product.b.value}
	case s.swap != nil:
		return []program.ID{s.swap.from}
	case s.copied != nil:
		return []program.ID{s.copied.from}
	}
	return s.segment.in
}

// writes lists those that it writes, but for outputs that are copied.
func (s *step) writes() []program.ID {
	switch {
	case s.product != nil:
		return []program.ID{s.product.to}
	case s.swap != nil:
		return []program.ID{s.swap.to}
	case s.copied != nil:
		return nil
	}
	return s.segment.out
}
