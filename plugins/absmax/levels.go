package main

import (
	"math"

	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/microscaling"
	"github.com/cage-qat/cage/sdk/program"
)

// centredEps is what the published centred quantizer adds to the maximum.
const centredEps = 1e-8

// smallest is the smallest scale that is a normal binary32 number. With a smaller scale,
// x/s cannot be trusted to stay on the grid, so the group counts as zero.
const smallest = 0x1p-126

// levels is a grid in units of its step s: integers, or half-integers when the
// grid is centred.
//
//	symmetric   s = amax/(2^(b−1)−1)      q = round(x/s) in ±(2^(b−1)−1)
//	full, gptq  s = amax/(2^b−1)·2        q = round(x/s) in −2^(b−1) … 2^(b−1)−1
//	centred     s = (amax+1e-8)/(2^b−1)·2 q = round(x/s + ½) − ½
type levels struct {
	// top is the ratio of the maximum to the step.
	top float64
	// offset is added to the maximum; 0 if none is.
	offset float64
	// lowest and highest bound the rounded numbers. On a full grid a tie can exceed the
	// highest; all other numbers are within the bounds anyway. Every grid applies them,
	// because the CPU rounds faster when it knows the bounds.
	lowest, highest float64
	centred         bool
	// scale is the type to which the step is rounded.
	scale microscaling.ScaleType
}

func newLevels(grid string, bits int, scale microscaling.ScaleType) (levels, error) {
	half := math.Ldexp(1, bits-1)
	if grid == gridCentred {
		return levels{top: half - 0.5, offset: centredEps, lowest: 1 - half, highest: half, centred: true, scale: scale}, nil
	}
	if bits < 2 {
		return levels{}, sdk.Refuse("bits = %d: the %s grid needs at least 2 bits; grid = %q has a grid of 1 bit", bits, grid, gridCentred)
	}
	if grid == gridSymmetric {
		return levels{top: half - 1, lowest: 1 - half, highest: half - 1, scale: scale}, nil
	}
	// For the maximum, x/s is half an odd integer, a tie: rounding to even gives
	// ±2^(b−1), of which only the negative one is a code.
	return levels{top: half - 0.5, lowest: -half, highest: half - 1, scale: scale}, nil
}

// quantize rounds x; amax has the largest magnitude of each group, and finite says which
// groups are finite. The values of the others are NaN. value = scale·codes.
func (l levels) quantize(x, amax, finite program.Value) (value, codes, scale program.Value) {
	b := x.Builder()
	// amax/top is rounded once, to the same number as 2·amax/(2·top).
	step := amax
	if l.offset != 0 {
		step = step.Shift(l.offset)
	}
	step = finite.Select(l.rounded(step.Div(b.Const(l.top))), b.Const(math.NaN()))
	if l.centred {
		level := l.round(x.Div(step).Shift(0.5)).Shift(-0.5)
		return level.Mul(step), level.Scale(2), step.Scale(0.5)
	}
	zero := step.Lt(b.Const(smallest))
	step = zero.Select(b.Const(0), step)
	q := l.round(x.Div(zero.Select(b.Const(math.Inf(1)), step)))
	return q.Mul(step), q, step
}

// rounded is the step, rounded to the type of scales.
func (l levels) rounded(step program.Value) program.Value {
	if l.centred {
		return l.scale.RoundStep(step)
	}
	return l.scale.Round(step)
}

// round is the nearest integer within the bounds. In a group that is not finite the
// result is not defined: the step is NaN there and makes the value NaN.
func (l levels) round(v program.Value) program.Value { return v.Round().Clip(l.lowest, l.highest) }
