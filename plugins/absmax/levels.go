package main

import (
	"math"

	"github.com/cage-qat/cage/sdk/program"
)

// centredEps is what the published centred quantizer adds to the maximum.
const centredEps = 1e-8

// smallest is the least scale that is a normal binary32 number. Below it x/s
// cannot be trusted to stay on the grid, and the group counts as zero.
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
	// offset is added to the maximum, 0 when there is none.
	offset float64
	// lowest and highest are the bounds of what is rounded. Only the highest of the
	// full grids can be exceeded, on a tie; but the CPU rounds faster what it knows
	// to lie within bounds.
	lowest, highest float64
	centred         bool
}

func newLevels(grid string, bits int) (levels, error) {
	half := math.Ldexp(1, bits-1)
	if grid == gridCentred {
		return levels{top: half - 0.5, offset: centredEps, lowest: 1 - half, highest: half, centred: true}, nil
	}
	if bits < 2 {
		return levels{}, errBits(grid, bits)
	}
	if grid == gridSymmetric {
		return levels{top: half - 1, lowest: 1 - half, highest: half - 1}, nil
	}
	// x/s of the maximum is half an odd integer, a tie: round to even gives
	// ±2^(b−1), of which only the negative one is a code.
	return levels{top: half - 0.5, lowest: -half, highest: half - 1}, nil
}

// quantize rounds x, whose groups have the maxima amax. The values of groups that
// are not finite are NaN; scale·codes = value.
func (l levels) quantize(x, amax, finite program.Value) (value, codes, scale program.Value) {
	b := x.Builder()
	// Dividing by top, a half of 2·top, rounds once and exactly as 2·amax/(2·top) does.
	step := amax
	if l.offset != 0 {
		step = step.Shift(l.offset)
	}
	step = finite.Select(step.Div(b.Const(l.top)), b.Const(math.NaN()))
	if l.centred {
		level := l.round(x.Div(step).Shift(0.5)).Shift(-0.5)
		return level.Mul(step), level.Scale(2), step.Scale(0.5)
	}
	zero := step.Lt(b.Const(smallest))
	step = zero.Select(b.Const(0), step)
	q := l.round(x.Div(zero.Select(b.Const(math.Inf(1)), step)))
	return q.Mul(step), q, step
}

// round is the nearest integer within the bounds. In a group that is not finite it
// is not defined: the step, which is NaN there, makes the value NaN.
func (l levels) round(v program.Value) program.Value { return v.Round().Clip(l.lowest, l.highest) }
