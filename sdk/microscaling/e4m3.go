package microscaling

import "github.com/cage-qat/cage/sdk/program"

// The E4M3 format (OCP 8-bit floating point specification, the variant without infinities).
const (
	// LargestE4M3 is the largest number of E4M3.
	LargestE4M3 = 448

	mantissaE4M3    = 3      // bits
	leastUnitE4M3   = -6 - 3 // exponent of the ulp, below 2⁻⁵
	largestUnitE4M3 = 8 - 3  // exponent of the ulp, from 2⁸ on
)

// RoundE4M3 rounds v to the nearest number of E4M3, ties to even. These numbers have three bits of
// mantissa; they are normal from 2⁻⁶ on, and multiples of 2⁻⁹ below. Magnitudes above 448, infinity
// included, saturate to 448. The sign of a zero result and the result for NaN are not defined.
//
// It extracts the exponent of each number, which on the CPU takes longer than all of
// [RoundE2M1], so it is meant for scales.
func RoundE4M3(v program.Value) program.Value {
	unit := unitE4M3(v)
	return v.Ldexp(unit.Neg()).Round().Ldexp(unit).Clip(-LargestE4M3, LargestE4M3)
}

// StochasticE4M3 rounds v stochastically to one of the two adjacent E4M3 numbers, so that the mean
// is v: to the upper one if u, uniform in [0, 1), is at least the distance to it in ulps. Numbers
// of E4M3 are unchanged if u has at most 19 bits. Magnitudes above 448 saturate to 448, so their
// mean is not v. NaN is treated as in [RoundE4M3].
func StochasticE4M3(v, u program.Value) program.Value {
	unit := unitE4M3(v)
	return v.Ldexp(unit.Neg()).Add(u).Floor().Ldexp(unit).Clip(-LargestE4M3, LargestE4M3)
}

func unitE4M3(v program.Value) program.Value {
	return v.Logb().Shift(-mantissaE4M3).Clip(leastUnitE4M3, largestUnitE4M3)
}
