package main

import (
	"math"

	"github.com/cage-qat/cage/sdk/microscaling"
	"github.com/cage-qat/cage/sdk/program"
)

// scales are the two levels of scales of a tensor.
type scales struct {
	tensor  program.Value // g or G, a scalar
	block   program.Value // sB, float[…,blocks,1]
	scale   program.Value // sB·g or sB/G, in the shape of block; NaN everywhere when the tensor is not finite
	divisor program.Value // scale, but +∞ where it is 0: then every ratio there is 0
	finite  program.Value // bool, a scalar: true if the tensor holds neither NaN nor ±Inf
}

// newScales writes the scales of blocks v, float[…,blocks,16], in the form that
// scale_form names.
//
// g or G is rounded to binary32, as formats store it, whatever the precision of the
// computation: bitcasting it to an integer and back does just that. For a tensor of zeros
// it is 1. A block whose maximum is at most 6·g·2⁻¹⁰ has sB = 0 and becomes zero.
func newScales(v program.Value, form string) scales {
	b := v.Builder()
	var s scales
	largest := v.Abs().MaxRow()
	overall := largest.MaxAll()
	s.finite = overall.IsFinite()
	reach := b.Const(microscaling.LargestE2M1 * microscaling.LargestE4M3)
	sixth := func() program.Value { return largest.Div(b.Const(microscaling.LargestE2M1)) }
	var scale program.Value
	if form == formEncode {
		g := reach.Div(overall).Bitcast(program.Uint).Bitcast(program.Float)
		s.tensor = g.IsFinite().Select(g, b.Const(1)) // where T is zero, or near to it
		s.block = microscaling.RoundE4M3(sixth().Mul(s.tensor))
		scale = s.block.Div(s.tensor)
	} else {
		g := overall.Div(reach).Bitcast(program.Uint).Bitcast(program.Float)
		s.tensor = g.Eq(b.Const(0)).Select(b.Const(1), g)
		s.block = microscaling.RoundE4M3(sixth().Div(s.tensor))
		scale = s.block.Mul(s.tensor)
	}
	s.scale = s.finite.Select(scale, b.Const(math.NaN()))
	s.divisor = s.scale.Eq(b.Const(0)).Select(b.Const(math.Inf(1)), s.scale)
	return s
}
