package main

import (
	"slices"

	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/program"
)

// groups arranges a tensor so that the numbers that share a scale are its last
// axis, or everything.
type groups struct {
	shape []int // of the site
	size  int   // entries of a row that share a scale; 0: the whole tensor does
}

func newGroups(site sdk.Site) groups {
	g := groups{shape: site.Shape}
	switch site.Text("granularity") {
	case perRow:
		g.size = site.RowLen()
	case perGroup:
		g.size = min(site.Int("group"), site.RowLen())
	}
	return g
}

// split tells whether a row has more than one group.
func (g groups) split() bool { return g.size > 0 && g.size < g.shape[len(g.shape)-1] }

// counts returns the length of a row, its number of groups, and how many entries
// the last one lacks.
func (g groups) counts() (row, n, missing int) {
	row = g.shape[len(g.shape)-1]
	n = (row + g.size - 1) / g.size
	return row, n, n*g.size - row
}

// apply gives each group an axis of its own: […,row] becomes […,n,size]. A last
// group that is too short is filled with zeros, which never change its maximum.
func (g groups) apply(x program.Value) program.Value {
	if !g.split() {
		return x
	}
	_, n, missing := g.counts()
	last := len(g.shape) - 1
	if missing > 0 {
		pad := slices.Clone(g.shape)
		pad[last] = missing
		x = x.Concatenate(last, x.Builder().Zeros(pad...))
	}
	return x.Reshape(append(slices.Clone(g.shape[:last]), n, g.size)...)
}

// undo is the inverse of apply.
func (g groups) undo(v program.Value) program.Value {
	if !g.split() {
		return v
	}
	row, n, missing := g.counts()
	shape := slices.Clone(g.shape)
	last := len(shape) - 1
	shape[last] = n * g.size
	v = v.Reshape(shape...)
	if missing == 0 {
		return v
	}
	start, stride := make([]int, len(shape)), make([]int, len(shape))
	for i := range stride {
		stride[i] = 1
	}
	shape[last] = row
	return v.Slice(start, shape, stride)
}

// max is the maximum of each group: one element on the last axis, or a scalar.
func (g groups) max(v program.Value) program.Value {
	if g.size > 0 {
		return v.MaxRow()
	}
	axes := make([]int, len(g.shape))
	for i := range axes {
		axes[i] = i
	}
	return v.ReduceMax(axes...)
}

// scaleAxes are the axes of the arranged tensor that a scale has.
func (g groups) scaleAxes() []int {
	rank := len(g.shape)
	switch {
	case g.size == 0:
		rank = 0
	case g.split():
		rank++
	}
	axes := make([]int, rank)
	for i := range axes {
		axes[i] = i
	}
	return axes
}
