package main

import (
	"math"
	"slices"

	"gonum.org/v1/gonum/floats"

	"github.com/cage-qat/cage/internal/testing/fpmodel"
	"github.com/cage-qat/cage/sdk/microscaling"
)

// eights lists the nonnegative numbers of E4M3 in order: 2⁻⁹ times 0…15, then eight for each
// exponent up to 448. The index is the code.
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

// model computes NVFP4 of a finite matrix with rows of d entries, without rotation, in binary64.
func model(x []float64, d int, given map[string]any) (value, codes, scale []float64) {
	text := func(name, otherwise string) string {
		if v, ok := given[name].(string); ok {
			return v
		}
		return otherwise
	}
	ties, rule := microscaling.Ties(text("ties", "even")), text("scale_rule", ruleSix)
	const level = 6
	reach, chooses := 448.0, rule == ruleMSE
	if chooses {
		reach = 256
	}
	g := float64(float32(floats.Norm(x, math.Inf(1)) / (level * reach)))
	switch text("scale_form", formDecode) {
	case formPower:
		g = math.Exp2(math.Ceil(math.Log2(floats.Norm(x, math.Inf(1)) / (level * reach))))
	case formEncode:
		g = 1 / float64(float32(level*reach/floats.Norm(x, math.Inf(1))))
	}
	if g == 0 {
		g = 1
	}
	for row := range slices.Chunk(x, d) {
		for v := range slices.Chunk(row, block) {
			var best struct{ value, codes, off []float64 }
			var chosen float64
			for _, factor := range []float64{1, 1.5} {
				if factor > 1 && !chooses {
					break
				}
				s := eights[fpmodel.Nearest(factor*floats.Norm(v, math.Inf(1))/level/g, eights,
					microscaling.TiesEven)]
				var now struct{ value, codes, off []float64 }
				for _, e := range v {
					ratio := math.Copysign(0, e)
					if s > 0 {
						ratio = e / (s * g)
					}
					code, near := fpmodel.E2M1(ratio, ties)
					now.value = append(now.value, near*s*g)
					now.codes = append(now.codes, float64(code))
					now.off = append(now.off, near*s-e/g)
				}
				if factor == 1 || floats.Norm(now.off, 2) < floats.Norm(best.off, 2) {
					best, chosen = now, s
				}
			}
			scale = append(scale, chosen*g)
			value = append(value, best.value...)
			codes = append(codes, best.codes...)
		}
	}
	return value, codes, scale
}
