package main

import (
	"fmt"
	"math"
	"testing"

	"github.com/cage-qat/cage/host/testing/plugintest"
	"github.com/cage-qat/cage/sdk"
)

// draw is a set of random numbers like those of the golden file: eight numbers of six decimals,
// which are not exact in binary32.
type draw struct {
	x, dy []float64
	at    trained
}

const drawn = 8

// draws returns sets for levels up to qp: with the initial step, and with steps that clip many and
// few elements.
func draws(qp, offset float64) (list []draw) {
	numbers := func(seed uint64) []float64 {
		v := plugintest.Normal(seed, drawn).Data
		for i := range v {
			v[i] = math.Round(v[i]*1e6) / 1e6
		}
		return v
	}
	for seed := range uint64(40) {
		x, dy := numbers(2*seed), numbers(2*seed+1)
		sum := 0.0
		for _, v := range x {
			sum += math.Abs(v)
		}
		for _, step := range []float64{2 * sum / drawn / math.Sqrt(qp), 0.05, 0.2, 1} {
			list = append(list, draw{x, dy, trained{[]float64{step}, offset}})
		}
	}
	return list
}

// TestRounding checks that ds and dβ of both grids of the golden file are within the error of
// binary32 for all draws, however much the sums cancel.
func TestRounding(t *testing.T) {
	plugintest.Each(t, func(t *testing.T, m plugintest.Bench) {
		for _, c := range []struct {
			role  sdk.Role
			given map[string]any
			formula
			offset float64
		}{
			{sdk.RoleWeight, nil, formula{qn: 8, qp: 7}, 0},
			{sdk.RoleActivation, map[string]any{"variant": variantPlus, "levels": levelsUnsigned},
				formula{qp: 15}, -0.3},
		} {
			c.gradientScale = 1 / math.Sqrt(drawn*c.qp)
			s := newSubject(t, m, c.role, c.given, drawn)
			for i, d := range draws(c.qp, c.offset) {
				_, want := c.gradient(d.x, d.at, drawn, d.dy)
				_, got := s.gradient(t, d.x, d.at, d.dy)
				allowed := c.roundings(d.x, d.at, drawn, d.dy, unit(m))
				what := fmt.Sprintf("%s, draw %d with step %v", c.role, i, d.at.step[0])
				within(t, what+": ds", got.step[0], want.step[0], allowed.step[0])
				if hasOffset(s.site) {
					within(t, what+": dβ", got.offset, want.offset, allowed.offset)
				}
			}
		}
	})
}

// TestRoundingTellsFormulasApart checks that the bound is tight enough to reject each wrong formula
// wherever its results differ.
func TestRoundingTellsFormulasApart(t *testing.T) {
	const qp, offset = 15, -0.3
	right := formula{qp: qp, gradientScale: 1 / math.Sqrt(drawn*qp)}
	for name, wrong := range map[string]func(r, level, inside, zero float64) (ds, dOffset float64){
		"no r inside": func(r, q, in, zero float64) (float64, float64) { return q, 1 - in },
		"−r inside": func(r, q, in, zero float64) (float64, float64) {
			return q - in*(q+r), 1 - in
		},
		"the other sign inside": func(r, q, in, zero float64) (float64, float64) {
			return q + in*(r-2*q), 1 - in
		},
		"nothing outside": func(r, q, in, zero float64) (float64, float64) {
			return in * (q - r), 0
		},
		"r without the offset": func(r, q, in, zero float64) (float64, float64) {
			return q - in*(r-zero), 1 - in
		},
		"dβ inside": func(r, q, in, zero float64) (float64, float64) { return q - in*r, in },
		"the number of levels": func(r, q, in, zero float64) (float64, float64) {
			return math.Sqrt(15./16) * (q - in*r), 1 - in
		},
		"a thousandth too large": func(r, q, in, zero float64) (float64, float64) {
			return 1.001 * (q - in*r), 1 - in
		},
	} {
		differ, told := 0, 0
		for _, d := range draws(qp, offset) {
			_, want := right.gradient(d.x, d.at, drawn, d.dy)
			allowed := right.roundings(d.x, d.at, drawn, d.dy, unit(plugintest.CPU(t)))
			var ds, dOffset float64
			for i, x := range d.x {
				_, level, inside, _ := right.element(x, d.at.step[0], offset)
				in := 0.0
				if inside {
					in = 1
				}
				byStep, byOffset := wrong((x-offset)/d.at.step[0], level, in, -offset/d.at.step[0])
				ds, dOffset = ds+right.gradientScale*d.dy[i]*byStep,
					dOffset+right.gradientScale*d.dy[i]*byOffset
			}
			offStep, offOffset := math.Abs(ds-want.step[0]), math.Abs(dOffset-want.offset)
			if offStep > 1e-12 || offOffset > 1e-12 {
				differ++
			}
			if offStep > allowed.step[0] || offOffset > allowed.offset {
				told++
			}
		}
		if differ == 0 || told < differ {
			t.Errorf("%s: %d of %d draws tell it from the right formula", name, told, differ)
		}
	}
}
