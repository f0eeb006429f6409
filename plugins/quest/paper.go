package main

import (
	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/microscaling"
	"github.com/cage-qat/cage/sdk/program"
)

// levels is a grid of the integers qmin … qmax in units of k·σ/qmax.
type levels struct{ qmin, qmax, k float64 }

// newLevels returns the grid of the paper form, qmax = 2^(b−1) − 1 and qmin = −2^(b−1), or of the
// ternary form, ±1.
func newLevels(site sdk.Site) (levels, error) {
	if site.Text("form") == formTernary {
		return levels{-1, 1, ternaryK}, nil
	}
	bits := site.Int("bits")
	if bits < 2 {
		return levels{}, sdk.Refuse("bits = %d: the paper's grid needs at least 2 bits; form = %q has "+
			"a grid of 1 bit", bits, formOfficial)
	}
	half := float64(int(1) << (bits - 1))
	return levels{-half, half - 1, matchedK[bits]}, nil
}

// quantize rounds z to the integer grid, row by row:
//
//	σ = √(mean z²) ; s = k_b·σ/qmax
//	r = z/s ; q = round(clip(r, qmin, qmax)) ; ẑ = s·q
//	M = [|r − q| ≤ trust/2]
//
// The bounds are integers, so r may be clipped before or after rounding. The mask is computed from
// r, where half a step is exactly ½: with trust = 1 it blocks exactly the entries outside
// [qmin − ½, qmax + ½], ties included. The clip mask is [trust·qmin ≤ r ≤ trust·qmax]. A row of
// zeros yields zeros and the mask 1. In a row that is not finite, r and s are NaN, so that ẑ is NaN
// and M is 0, regardless of q.
func (l levels) quantize(z program.Value, site sdk.Site) grid {
	sigma, finite := rms(z)
	scale := whereFinite(microscaling.ScaleTypeOf(site).Round(sigma.Scale(l.k/l.qmax)), finite)
	// A row of zeros is divided by 1 instead of 0; its ẑ is 0 because its scale is still 0.
	divisor := sigma.Eq(z.Builder().Const(0)).Select(z.Builder().Const(1), scale)
	r := z.Div(divisor)
	inside := r.Clip(l.qmin, l.qmax)
	q := inside.Round()
	return grid{
		zhat:   q.Mul(scale),
		codes:  q,
		scale:  scale,
		mask:   l.mask(r, inside, finite, site),
		finite: finite,
		all:    sdk.Integers(int(l.qmin), int(l.qmax), 0),
	}
}

// mask returns M, which is false in rows that are not finite: r is NaN there, and all comparisons
// are false. inside is r clipped to the bounds.
//
// Rounding changes r by at most ½. With trust ≥ 1 everything inside the bounds is therefore
// trusted, and outside them the nearest level is the bound. Then |r − inside| ≤ trust/2 gives the
// same mask, and is faster on the CPU.
func (l levels) mask(r, inside, finite program.Value, site sdk.Site) program.Value {
	trust := site.Float("trust")
	switch site.Text("mask") {
	case maskNone:
		return finite
	case maskClip:
		return r.Eq(r.Clip(trust*l.qmin, trust*l.qmax))
	}
	nearest := inside
	if trust < 1 {
		nearest = inside.Round()
	}
	return r.Sub(nearest).Abs().Le(r.Builder().Const(trust / 2))
}
