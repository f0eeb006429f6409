package main

import (
	"math"
	"slices"

	"gonum.org/v1/gonum/floats"

	"github.com/cage-qat/cage/internal/testing/fpmodel"
	"github.com/cage-qat/cage/sdk/microscaling"
)

// modelled is the result of MXFP4 for a matrix without rotation.
type modelled struct{ value, codes, scale, clip, trust []float64 }

// model computes MXFP4 of finite rows of d entries, block by block in binary64.
func model(x []float64, d int, rule string, ties microscaling.Ties) (out modelled) {
	for row := range slices.Chunk(x, d) {
		for v := range slices.Chunk(row, block) {
			power, gain := modelScale(v, rule)
			out.scale = append(out.scale, power/gain)
			for _, e := range v {
				r := e / power * gain
				code, p := fpmodel.E2M1(r, ties)
				out.codes = append(out.codes, float64(code))
				out.value = append(out.value, p*power/gain)
				out.clip = append(out.clip, one(math.Abs(r) < 6))
				out.trust = append(out.trust, one(math.Abs(r-p) <= 1))
			}
		}
	}
	return out
}

func modelScale(v []float64, rule string) (power, gain float64) {
	largest, mean, variance := floats.Norm(v, math.Inf(1)), 0.0, 0.0
	for _, e := range v {
		mean += e / block
	}
	for j := range block {
		e := 0.0
		if j < len(v) {
			e = v[j]
		}
		variance += (e - mean) * (e - mean) / block
	}
	fraction, e := math.Frexp(largest)
	e -= 3
	gain = 1
	switch rule {
	case ruleRound:
		if fraction >= 1.75/2 {
			e++
		}
	case ruleAbsMax34:
		gain = 0.75
	case ruleCeil:
		if fraction > 1.5/2 {
			e++
		}
	case ruleQuest:
		_, e = math.Frexp(0.48707976*math.Sqrt(variance) + 1e-8)
		e--
	}
	if largest == 0 && rule != ruleQuest {
		e = -127
	}
	return math.Ldexp(1, min(max(e, -127), 127)), gain
}

func one(on bool) float64 {
	if on {
		return 1
	}
	return 0
}
