package main

import (
	"slices"
	"strings"

	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/program"
)

// region is a part of a tensor that divides into blocks of one shape. It has one stretch per axis.
type region []stretch

// stretch is a contiguous part of an axis: count pieces of equal size.
type stretch struct {
	start, count, size int
	rest               bool // the remainder of an axis after the blocks of full size
}

// eachBlock holds the batch axes for a product of two stacks of blocks.
var eachBlock = [2][]int{{0}, {0}}

// regions divides the tensor so that no axis of a block is longer than max_precond_dim: a longer
// axis is divided into blocks of exactly this size, with a smaller one at the end for the
// remainder. The regions are ordered by position, with the last axis varying fastest.
func regions(t sdk.Tensor) []region {
	most := t.Int("max_precond_dim")
	list := []region{nil}
	for _, d := range t.Shape {
		stretches := []stretch{{count: 1, size: d}}
		if d > most {
			stretches = []stretch{{count: d / most, size: most}}
			if left := d % most; left > 0 {
				stretches = append(stretches, stretch{start: d - left, count: 1, size: left, rest: true})
			}
		}
		var next []region
		for _, r := range list {
			for _, s := range stretches {
				next = append(next, append(slices.Clone(r), s))
			}
		}
		list = next
	}
	return list
}

// suffix distinguishes the regions of a tensor in the names of state tensors. It is empty for the
// first region. For others it has one digit per axis: 1 if the region is the remainder of the axis,
// else 0.
func (r region) suffix() string {
	digits := make([]string, len(r))
	for i, s := range r {
		digits[i] = "0"
		if s.rest {
			digits[i] = "1"
		}
	}
	if !slices.Contains(digits, "1") {
		return ""
	}
	return "." + strings.Join(digits, "")
}

// take returns the blocks of the region of v as a stack, [blocks, …].
func (r region) take(v program.Value) program.Value {
	var from, to, by, size []int
	for _, s := range r {
		from, to, by = append(from, s.start), append(to, s.start+s.count*s.size), append(by, 1)
		size = append(size, s.count*s.size)
	}
	if !slices.Equal(size, v.Shape()) {
		v = v.Slice(from, to, by)
	}
	blocks, stacked := 1, []int{0}
	for _, s := range r {
		blocks *= s.count
		stacked = append(stacked, s.size)
	}
	if stacked[0] = blocks; r.interleaved() {
		v = v.Reshape(r[0].count, r[0].size, r[1].count, r[1].size).Transpose(0, 2, 1, 3)
	}
	return v.Reshape(stacked...)
}

// interleaved reports whether the rows of a block are not contiguous in the region.
func (r region) interleaved() bool { return len(r) == 2 && r[1].count > 1 }

// assemble returns the tensor whose regions have the given stacked blocks.
func assemble(list []region, stacks []program.Value) program.Value {
	parts := make([]program.Value, len(stacks))
	for i, r := range list {
		v := stacks[i]
		if r.interleaved() {
			v = v.Reshape(r[0].count, r[1].count, r[0].size, r[1].size).Transpose(0, 2, 1, 3)
		}
		var shape []int
		for _, s := range r {
			shape = append(shape, s.count*s.size)
		}
		parts[i] = v.Reshape(shape...)
	}
	for axis := len(list[0]) - 1; axis >= 0; axis-- {
		if !slices.ContainsFunc(list, func(r region) bool { return r[axis].rest }) {
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
