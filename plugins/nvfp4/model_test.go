package main

import (
	"math"
	"slices"

	"gonum.org/v1/gonum/floats"

	"github.com/cage-qat/cage/internal/fpmodel"
	"github.com/cage-qat/cage/sdk/microscaling"
)

// eights are the non-negative numbers of E4M3 in order: 2⁻⁹ times 0…15, then
// eight for each exponent up to 448; the index is the code.
var eights = func() (all []float64) {
	for code := range 127 {
		mantissa, exponent := code%8, code/8
		if exponent > 0 {
			mantissa += 8
			exponent--
		}
		all = append(all, math.Ldexp(float64(mantissa), exponent-9))
	}
	return all
}()

// model works out NVFP4 of a finite matrix without rotation, rows of d entries, in
// binary64.
func model(x []float64, d int, ties microscaling.Ties, form string) (value, codes, scale []float64) {
	g := float64(float32(floats.Norm(x, math.Inf(1)) / 2688))
	if form == formEncode {
		g = 1 / float64(float32(2688/floats.Norm(x, math.Inf(1))))
	}
	if g == 0 {
		g = 1
	}
	for row := range slices.Chunk(x, d) {
		for v := range slices.Chunk(row, block) {
			s := eights[fpmodel.Nearest(floats.Norm(v, math.Inf(1))/6/g, eights, microscaling.TiesEven)]
			scale = append(scale, s*g)
			for _, e := range v {
				ratio := math.Copysign(0, e)
				if s > 0 {
					ratio = e / (s * g)
				}
				code, level := fpmodel.E2M1(ratio, ties)
				value = append(value, level*s*g)
				codes = append(codes, float64(code))
			}
		}
	}
	return value, codes, scale
}
