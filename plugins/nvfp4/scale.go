package main

import (
	"math"

	"github.com/cage-qat/cage/sdk/microscaling"
	"github.com/cage-qat/cage/sdk/program"
)

// scales are the two levels of scales of a tensor.
type scales struct {
	tensor  program.Value // g, a scalar
	block   program.Value // sB, float[…,blocks,1]
	scale   program.Value // sB·g, likewise; NaN everywhere when the tensor is not finite
	divisor program.Value // sB·g, but +∞ where that is 0: then every ratio is 0
	finite  program.Value // bool, a scalar: the tensor holds neither NaN nor ±Inf
}

// newScales writes the scales of blocks v, float[…,blocks,16].
//
// g is rounded to binary32, as the format stores it, whatever the precision of the
// computation: reading its bits and reading them back does just that. It is 1 where
// it would be 0, for a tensor of zeros; a block whose maximum is at most 6·g·2⁻¹⁰
// has sB = 0 and becomes zero.
func newScales(v program.Value) scales {
	b := v.Builder()
	var s scales
	largest := v.Abs().MaxRow()
	all := make([]int, len(largest.Shape()))
	for i := range all {
		all[i] = i
	}
	overall := largest.ReduceMax(all...)
	s.finite = overall.IsFinite()
	g := overall.Div(b.Const(microscaling.LargestE2M1 * microscaling.LargestE4M3)).Bitcast(program.Uint).Bitcast(program.Float)
	s.tensor = g.Eq(b.Const(0)).Select(b.Const(1), g)
	s.block = microscaling.RoundE4M3(largest.Div(b.Const(microscaling.LargestE2M1)).Div(s.tensor))
	s.scale = s.finite.Select(s.block.Mul(s.tensor), b.Const(math.NaN()))
	s.divisor = s.scale.Eq(b.Const(0)).Select(b.Const(math.Inf(1)), s.scale)
	return s
}
