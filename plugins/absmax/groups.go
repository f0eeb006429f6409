package main

import (
	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/microscaling"
	"github.com/cage-qat/cage/sdk/program"
)

// groups rearranges a tensor so that the numbers that share a scale lie along the last
// axis. A tensor with one scale for all its numbers, or one for each row, stays as it is.
type groups struct {
	whole  bool // the whole tensor has one scale
	split  bool // a row has more than one group
	blocks microscaling.Blocks
}

func newGroups(site sdk.Site) groups {
	size := site.RowLen()
	if site.Text("granularity") == perGroup {
		size = min(site.Int("group"), size)
	}
	return groups{
		whole:  site.Text("granularity") == perTensor,
		split:  size < site.RowLen(),
		blocks: microscaling.NewBlocks(site.Shape, size),
	}
}

// apply gives each group an axis of its own: […,row] becomes […,n,size]. A last
// group that is too short is filled with zeros, which never change its maximum.
func (g groups) apply(x program.Value) program.Value {
	if !g.split {
		return x
	}
	return g.blocks.Split(x)
}

// undo is the inverse of apply.
func (g groups) undo(v program.Value) program.Value {
	if !g.split {
		return v
	}
	return g.blocks.Join(v)
}

// max is the maximum of each group: one element on the last axis, or a scalar.
func (g groups) max(v program.Value) program.Value {
	if g.whole {
		return v.MaxAll()
	}
	return v.MaxRow()
}
