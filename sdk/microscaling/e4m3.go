package microscaling

import "github.com/cage-qat/cage/sdk/program"

// The E4M3 format (OCP 8-bit floating point specification, the variant without
// infinities).
const (
	// LargestE4M3 is the largest number of E4M3.
	LargestE4M3 = 448

	mantissaE4M3    = 3      // bits
	leastUnitE4M3   = -6 - 3 // exponent of the distance between numbers, below 2⁻⁵
	largestUnitE4M3 = 8 - 3  // the same, from 2⁸ on
)

// RoundE4M3 rounds v to the nearest number of E4M3, ties to even. These numbers have
// three bits of mantissa; they are normal from 2⁻⁶ on, and multiples of 2⁻⁹ below.
// Magnitudes above 448, infinity included, become 448. The sign of a zero result and the
// result for NaN are not defined.
//
// It reads the exponent of each number, which takes the CPU longer than all of
// [RoundE2M1], so it is meant for scales.
func RoundE4M3(v program.Value) program.Value {
	unit := v.Logb().Shift(-mantissaE4M3).Clip(leastUnitE4M3, largestUnitE4M3)
	return v.Ldexp(unit.Neg()).Round().Ldexp(unit).Clip(-LargestE4M3, LargestE4M3)
}
