package main

import (
	"math"
	"slices"

	"github.com/cage-qat/cage/sdk/microscaling"
)

// magnitudes are those of E2M1 by their codes.
var magnitudes = [8]float64{0, 0.5, 1, 1.5, 2, 3, 4, 6}

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

// nearest is the index of the number nearest to m in a sorted list, by looking at
// all of them: the slow, plain way.
func nearest(m float64, list []float64, ties microscaling.Ties) (index int) {
	for i := 1; i < len(list); i++ {
		switch middle := (list[i-1] + list[i]) / 2; {
		case m > middle,
			m == middle && ties == microscaling.TiesAway,
			m == middle && ties == microscaling.TiesEven && i%2 == 0:
			index = i
		}
	}
	return index
}

// model works out NVFP4 of a finite matrix without rotation, rows of d entries, in
// binary64.
func model(x []float64, d int, ties microscaling.Ties) (value, codes, scale []float64) {
	g := float64(float32(amax(x) / 2688))
	if g == 0 {
		g = 1
	}
	for row := range slices.Chunk(x, d) {
		for v := range slices.Chunk(row, block) {
			s := eights[nearest(amax(v)/6/g, eights, microscaling.TiesEven)]
			scale = append(scale, s*g)
			for _, e := range v {
				code := 0
				if s > 0 {
					code = nearest(math.Abs(e)/(s*g), magnitudes[:], ties)
				}
				value = append(value, math.Copysign(magnitudes[code], e)*s*g)
				if math.Signbit(e) {
					code += 8
				}
				codes = append(codes, float64(code))
			}
		}
	}
	return value, codes, scale
}

func amax(v []float64) (most float64) {
	for _, e := range v {
		most = max(most, math.Abs(e))
	}
	return most
}
