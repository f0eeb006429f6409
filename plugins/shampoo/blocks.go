package main

import (
	"slices"
	"strings"

	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/program"
)

// layout describes how a tensor is divided into blocks.
type layout struct {
	shape []int // of the tensor after merging axes
	// regions are the parts of the tensor that have blocks of one shape, ordered by position, with
	// the last axis varying fastest.
	regions []region
}

// region is a part of a tensor that is a grid of blocks of one shape, given by one stretch of each
// axis.
type region []stretch

// stretch is a part of an axis: count pieces of equal size.
type stretch struct {
	start, count, size int
	rest               bool // the remainder of an axis after the blocks of full size
}

// eachBlock names the batch axes of a product of two stacks of blocks.
var eachBlock = [2][]int{{0}, {0}}

// layoutOf divides the tensor so that no axis of a block is longer than max_precond_dim: a longer
// axis is divided into blocks of exactly this size, with a smaller one at the end for the
// remainder.
func layoutOf(t sdk.Tensor) layout {
	most := t.Int("max_precond_dim")
	l := layout{shape: slices.Clone(t.Shape)}
	if t.Bool("merge_dims") {
		l.shape = merge(t.Shape, most)
	}
	if len(l.shape) == 0 {
		l.shape = []int{1}
	}
	l.regions = []region{nil}
	for _, d := range l.shape {
		var next []region
		for _, r := range l.regions {
			for _, s := range cut(d, most) {
				next = append(next, append(slices.Clone(r), s))
			}
		}
		l.regions = next
	}
	return l
}

// merge drops axes of length 1, and merges adjacent axes while the product of their lengths does
// not exceed most.
func merge(shape []int, most int) []int {
	var out []int
	for _, d := range shape {
		switch last := len(out) - 1; {
		case d == 1:
		case last >= 0 && out[last] <= most/d:
			out[last] *= d
		default:
			out = append(out, d)
		}
	}
	return out
}

// cut divides an axis of d elements into stretches.
func cut(d, most int) []stretch {
	if d <= most {
		return []stretch{{count: 1, size: d}}
	}
	parts := []stretch{{count: d / most, size: most}}
	if left := d % most; left > 0 {
		parts = append(parts, stretch{start: d - left, count: 1, size: left, rest: true})
	}
	return parts
}

// blocks returns the number of blocks of the region.
func (r region) blocks() int {
	n := 1
	for _, s := range r {
		n *= s.count
	}
	return n
}

// suffix distinguishes the regions of a tensor in the names of state tensors. It is empty for the
// first region. For others it has one digit per axis: 1 if the region is the remainder of the axis,
// else 0.
func (r region) suffix() string {
	places := make([]string, len(r))
	for i, s := range r {
		places[i] = "0"
		if s.rest {
			places[i] = "1"
		}
	}
	if !slices.Contains(places, "1") {
		return ""
	}
	return "." + strings.Join(places, "")
}

// interleaved returns the region's shape with each axis split into count × size, and the
// permutation of axes that puts all counts first.
func (r region) interleaved() (shape, order []int) {
	for i, s := range r {
		shape = append(shape, s.count, s.size)
		order = append(order, 2*i)
	}
	for i := range r {
		order = append(order, 2*i+1)
	}
	return shape, order
}

// inPlace reports whether the blocks are already contiguous, which is the case if only the first
// axis is divided.
func (r region) inPlace() bool {
	return !slices.ContainsFunc(r[1:], func(s stretch) bool { return s.count > 1 })
}

// take returns the stacked blocks of a region of v.
func (l layout) take(v program.Value, r region) program.Value {
	v = v.Reshape(l.shape...)
	if len(l.regions) > 1 {
		var from, to, by []int
		for _, s := range r {
			from, to, by = append(from, s.start), append(to, s.start+s.count*s.size), append(by, 1)
		}
		v = v.Slice(from, to, by)
	}
	if !r.inPlace() {
		shape, order := r.interleaved()
		v = v.Reshape(shape...).Transpose(order...)
	}
	stacked := []int{r.blocks()}
	for _, s := range r {
		stacked = append(stacked, s.size)
	}
	return v.Reshape(stacked...)
}

// assemble returns the tensor with the stacked blocks of its regions.
func (l layout) assemble(stacks []program.Value) program.Value {
	parts := make([]program.Value, len(stacks))
	for i, r := range l.regions {
		parts[i] = r.assemble(stacks[i])
	}
	for axis := len(l.shape) - 1; axis >= 0; axis-- {
		if !slices.ContainsFunc(l.regions, func(r region) bool { return r[axis].rest }) {
			continue
		}
		var joined []program.Value // of blocks of two sizes
		for run := range slices.Chunk(parts, 2) {
			joined = append(joined, run[0].Concatenate(axis, run[1]))
		}
		parts = joined
	}
	return parts[0]
}

// assemble returns the region with the stacked blocks.
func (r region) assemble(v program.Value) program.Value {
	if !r.inPlace() {
		shape, order := r.interleaved()
		moved, back := make([]int, len(order)), make([]int, len(order))
		for i, axis := range order {
			moved[i], back[axis] = shape[axis], i
		}
		v = v.Reshape(moved...).Transpose(back...)
	}
	var shape []int
	for _, s := range r {
		shape = append(shape, s.count*s.size)
	}
	return v.Reshape(shape...)
}
