package main

import (
	"math"

	"github.com/cage-qat/cage/sdk/microscaling"
	"github.com/cage-qat/cage/sdk/program"
)

// mlxLeast is the least magnitude of a scale of mx.quantize.
const mlxLeast = 1e-7

// affine rounds x to codes q from 0 to n = 2^b−1 with q·s + m, by one of these rules; s and m are
// rounded to the type of scales after q is computed. e is the minimum or the maximum of the group,
// whichever has the larger magnitude, and s is negative if it is the maximum.
//
//	minimum  s = (max−min)/n, m = min          q = ⌊(x−m)·(1/s) + ½⌋         (llama.cpp's Q4_1, Q5_1)
//	mlx      s = e/round(e/((max−min)/n)), m = e q = round((x−m)/s)          (mx.quantize of MLX)
//	affine   |s| = (max−min)/n or (max−min)/(n−1), m = e, q as for mlx
//
// The largest code that mlx uses is n or n−1, so that a second rounding gives another scale. affine
// takes the scale with the smaller error, and keeps what mlx has rounded.
func (l levels) affine(x, finite program.Value) (value, codes, scale program.Value) {
	b := x.Builder()
	high, low := x.MaxRow(), x.Neg().MaxRow().Neg()
	width := high.Sub(low)
	if l.grid == gridMinimum {
		step := width.Div(b.Const(l.highest))
		zero := l.scale.zero(step)
		v := x.Sub(low).Mul(zero.Select(b.Const(0), b.Const(1).Div(step)))
		return l.pair(v.Shift(0.5).Floor(), step, low, finite)
	}
	below := low.Abs().Gt(high.Abs())
	edge, sign := below.Select(low, high), below.Select(b.Const(1), b.Const(-1))
	round := func(step, minimum program.Value) (value, codes, scale program.Value) {
		return l.pair(x.Sub(minimum).Div(step).Round(), step, minimum, finite)
	}
	step := func(n float64) program.Value {
		return width.Div(b.Const(n)).Max(b.Const(mlxLeast)).Mul(sign)
	}
	if l.grid == gridMLX {
		step := step(l.highest)
		q := edge.Div(step).Round()
		none := q.Eq(b.Const(0))
		step = none.Select(step, edge.Div(none.Select(b.Const(1), q)))
		return round(step, none.Select(b.Const(0), edge))
	}
	value, codes, scale = round(step(l.highest), edge)
	otherValue, otherCodes, otherScale := round(step(l.highest-1), edge)
	better := nearer(x, otherValue, value, program.Value.SumRow)
	return better.Select(otherValue, value), better.Select(otherCodes, codes),
		better.Select(otherScale, scale)
}

// asymmetric rounds x to integers from lowest to highest minus a zero point z, one of these.
// The range is that of x and 0, and z is that of the step before it is rounded to the type of
// scales, as in calculate_qparams of compressed-tensors:
//
//	s = (max−min)/(2^b−1), z = round(lowest − min/s), q = round(x/s + z) − z
//
// Ties and the rounding of s can leave one of the 2^b integers unused, so that a second rounding
// gives another scale. asymmetric_fit keeps numbers that are on a grid of 2^b or 2^b−1 integers. If
// products with s are rounded, s itself is that of a number whose code is a power of two.
func (l levels) asymmetric(x, finite program.Value) (value, codes, scale program.Value) {
	b := x.Builder()
	low, zeros := x.Neg().MaxRow().Max(b.Const(0)).Neg(), b.Const(0)
	width := x.MaxRow().Max(zeros).Sub(low)
	round := func(step program.Value) (value, codes, scale program.Value) {
		z := b.Const(l.lowest).Sub(low.Div(step)).Clip(l.lowest, l.highest).Round()
		s := l.scale.signed(step)
		zero := s.Eq(zeros)
		q := x.Div(zero.Select(b.Const(math.Inf(1)), s)).Add(z)
		codes = zero.Select(zeros, l.round(q).Sub(z))
		s = finite.Select(s, b.Const(math.NaN()))
		return codes.Mul(s), codes, s
	}
	step := width.Div(b.Const(l.highest - l.lowest))
	value, codes, scale = round(step)
	if l.grid == gridZero {
		return value, codes, scale
	}
	for _, n := range []float64{l.highest - l.lowest - 1, l.highest - l.lowest} {
		step := width.Div(b.Const(n))
		_, q, _ := round(step)
		size := q.Abs()
		power := b.Const(1).Ldexp(size.Max(b.Const(1)).Logb()).Eq(size)
		exact := x.Div(power.Select(q, b.Const(math.Inf(1)))).MaxRow()
		v, c, s := round(exact.Gt(zeros).Select(exact, step))
		keeps := x.Sub(v).Abs().MaxRow().Eq(zeros)
		value, codes, scale = keeps.Select(v, value), keeps.Select(c, codes), keeps.Select(s, scale)
	}
	return value, codes, scale
}

// nearer reports whether a is nearer to x than b is, by the squares of the errors. sum adds them up
// for the numbers that share a scale.
func nearer(x, a, b program.Value, sum func(program.Value) program.Value) program.Value {
	return sum(x.Sub(a).Square()).Lt(sum(x.Sub(b).Square()))
}

// pair returns the values of codes, and steps and minima as pairs.
func (l levels) pair(q, step, minimum, finite program.Value) (value, codes, scale program.Value) {
	nan := q.Builder().Const(math.NaN())
	codes = q.Clip(0, l.highest)
	step = finite.Select(l.scale.signed(step), nan)
	minimum = finite.Select(l.scale.signed(minimum), nan)
	return codes.Mul(step).Add(minimum), codes, step.Concatenate(step.Type().Rank()-1, minimum)
}

// scaleType is the type of scales, with zero.
type scaleType struct{ microscaling.ScaleType }

// zero reports whether the magnitude of v is rounded to 0.
func (t scaleType) zero(v program.Value) program.Value {
	b := v.Builder()
	if t.ScaleType == microscaling.ScaleF16 {
		return v.Abs().Le(b.Const(0x1p-25)) // the tie between 0 and the smallest half float
	}
	return v.Abs().Lt(b.Const(smallest))
}

// signed rounds numbers of either sign.
func (t scaleType) signed(v program.Value) program.Value {
	size, b := t.Round(v.Abs()), v.Builder()
	return t.zero(v).Select(b.Const(0), v.Lt(b.Const(0)).Select(size.Neg(), size))
}

// isAffine reports whether groups have a minimum.
func isAffine(grid string) bool {
	return grid == gridMinimum || grid == gridMLX || grid == gridAffine
}
