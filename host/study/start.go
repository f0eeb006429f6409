package study

import (
	"maps"
	"slices"
)

// A cell with init is trained from the model of another cell: that with these labels, and with its
// own labels of the other axes.

// findStarts finds for each plan the one whose model it starts from: its number, counted from 1; 0:
// there is none.
func (r *reader) findStarts(plans []plan, axes []axis) []int {
	starts := make([]int, len(plans))
	named := map[*table]map[string][]string{} // nil: what is wrong is reported
	var found problems
	for i, p := range plans {
		if p.init == nil {
			continue
		}
		labels, known := named[p.init]
		if !known {
			problems := len(r.Errs)
			labels = p.init.labels(axes, false)
			if p.init.checkLabels(labels, axes); len(r.Errs) > problems {
				labels = nil
			}
			named[p.init] = labels
		}
		wrong := func(what, hint string) {
			e := r.ErrorAt(p.init.path, "%s", what)
			e.Hint = hint
			found.add(e, p.name(axes))
		}
		want := maps.Clone(p.labels)
		for axis, list := range labels {
			want[axis] = list[0]
		}
		const hint = "want those of a cell that is trained; an axis that is left out has the label of the cell itself"
		j := slices.IndexFunc(plans, func(o plan) bool { return maps.Equal(o.labels, want) })
		switch {
		case labels == nil:
		case j < 0:
			wrong("no cell has these labels", hint)
		case plans[j].quantize != nil:
			wrong("the model of the cell with these labels is quantized", hint)
		default:
			starts[i] = j + 1
		}
	}
	for i := range plans { // those that start from each other
		at := i
		for range plans {
			if at = starts[at] - 1; at < 0 {
				break
			}
		}
		if at >= 0 {
			e := r.ErrorAt(plans[i].init.path, "the cell starts from a model that starts from its own")
			found.add(e, plans[i].name(axes))
			starts[i] = 0
		}
	}
	r.Errs = append(r.Errs, found.list(len(plans))...)
	return starts
}

// madeOf is the cell whose model another one is made of; nil where there is none.
func (s *Study) madeOf(c Cell) *Cell {
	if c.made == 0 {
		return nil
	}
	return &s.Cells[c.made-1]
}

// depth is how many models are made one after the other before that of a cell.
func (s *Study) depth(c Cell) (n int) {
	for of := s.madeOf(c); of != nil; of = s.madeOf(*of) {
		n++
	}
	return n
}
