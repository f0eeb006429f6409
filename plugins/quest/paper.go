package main

import (
	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/program"
)

// quantizePaper rounds z to the integer grid of the CAGE paper ("Quantization
// pipeline"), row by row:
//
//	qmax = 2^(b−1) − 1 ; qmin = −2^(b−1)
//	σ = √(mean z²) ; s = k_b·σ/qmax
//	r = z/s ; q = clip(round(r), qmin, qmax) ; ẑ = s·q
//	M = [|r − q| ≤ trust/2]
//
// The mask is taken on r, where half a step is exactly ½: with trust = 1 it blocks
// exactly the entries outside [qmin − ½, qmax + ½], ties included. The clip mask
// is [trust·qmin ≤ r ≤ trust·qmax]. A zero row gives zeros, mask 1.
func quantizePaper(z program.Value, site sdk.Site) (grid, error) {
	bits := site.Int("bits")
	if bits < 2 {
		return grid{}, errBits(bits)
	}
	table := matchedK
	if site.Text("k_table") == tableOfficial {
		table = officialK
	}
	qmax := float64(int(1)<<(bits-1) - 1)
	qmin := -qmax - 1

	sigma, finite := rms(z)
	scale := poison(sigma.Scale(table[bits]/qmax), finite)
	// In a zero row 0/1 stands for 0/0; ẑ is 0 by the scale, which stays 0.
	divisor := sigma.Eq(z.Builder().Const(0)).Select(z.Builder().Const(1), scale)
	r := z.Div(divisor)
	q := r.Round().Clip(qmin, qmax)
	return grid{
		zhat:   q.Mul(scale),
		codes:  q,
		scale:  scale,
		mask:   paperMask(r, q, finite, qmin, qmax, site),
		finite: finite,
	}, nil
}

// paperMask is false in rows that are not finite: there r is NaN, for which no
// comparison holds.
func paperMask(r, q, finite program.Value, qmin, qmax float64, site sdk.Site) program.Value {
	b, trust := r.Builder(), site.Float("trust")
	switch site.Text("mask") {
	case maskNone:
		return finite
	case maskClip:
		return r.Ge(b.Const(trust * qmin)).And(r.Le(b.Const(trust * qmax)))
	default:
		return r.Sub(q).Abs().Le(b.Const(trust / 2))
	}
}
