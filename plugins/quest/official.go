package main

import (
	"math"

	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/microscaling"
	"github.com/cage-qat/cage/sdk/program"
)

// officialEps is added to the largest level by the published code.
const officialEps = 1e-8

// quantizeOfficial rounds z to the half-integer grid of QuEST's published code
// (HadamardTrustQuantizer, TrustQuantizer, ClipQuantizer), row by row:
//
//	a = k_b·σ + 1e-8 ; n = 2^b ; step = 2a/(n−1)
//	ẑ = round(clip(z, −a, a)/step + ½)·step − step/2
//	trust: M = [|ẑ − z| ≤ σ·trust·k_b/(n−1)]     clip: M = [|z| ≤ trust·a]
//
// The levels are ±step/2, ±3·step/2, …, ±a, without zero. The computation is in units of the step,
// r = z/step, in which the levels are exact half-integers. Codes are the odd integers 2·level, so
// that ẑ = (step/2)·codes.
//
// A row of zeros yields zeros and M = 1. In the published code it yields ẑ = −step/2 and M = 0,
// since a includes 1e-8 and the threshold does not.
func quantizeOfficial(z program.Value, site sdk.Site) grid {
	b := z.Builder()
	k := microscaling.HalfIntegerFactors[site.Int("bits")]
	n := math.Ldexp(1, site.Int("bits"))

	sigma, finite := rms(z)
	amplitude := whereFinite(sigma.Scale(k).Shift(officialEps), finite)
	step := microscaling.ScaleTypeOf(site).RoundStep(amplitude.Scale(2/(n-1)), true)
	step = whereFinite(step, finite)
	r := z.Div(step)
	level := r.Shift(0.5).Round().Clip(1-n/2, n/2).Shift(-0.5)
	limit := sigma.Scale(site.Float("trust") * k / (n - 1)).Div(step)
	codes, zero := level.Scale(2), sigma.Eq(b.Const(0))
	scale := zero.Select(b.Const(0), step)
	codes = zero.Select(b.Const(0), codes)
	limit = zero.Select(b.Const(1), limit)
	mask := finite
	switch site.Text("mask") {
	case maskTrust:
		mask = level.Sub(r).Abs().Le(limit)
	case maskClip:
		mask = z.Abs().Le(amplitude.Scale(site.Float("trust")))
	}
	return grid{
		zhat:   level.Mul(scale),
		codes:  codes,
		scale:  scale.Scale(0.5),
		mask:   mask,
		finite: finite,
		all:    sdk.OddIntegers(int(n)-1, 0),
	}
}
