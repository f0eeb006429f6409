package main

import (
	"math"

	"github.com/cage-qat/cage/sdk/microscaling"
	"github.com/cage-qat/cage/sdk/program"
)

const (
	// largestExponent bounds the exponents of E8M0 on both sides.
	largestExponent = 127

	// rangeGain is the factor that absmax34 applies before rounding. With it the maximum
	// is below 6 units of the power of two, without it below 8.
	rangeGain = 0.75

	// questLargest is the largest level, in standard deviations, of E2M1 scaled so
	// that the squared error on a Gaussian is least (FP-Quant, quest rule).
	questLargest = 2.92247856
	// questEps is what the published kernels add to the scale.
	questEps = 1e-8
)

// scale is what the entries of each block share. Its values have the shape […,blocks,1].
type scale struct {
	scale   program.Value // X; NaN in blocks that are not finite
	inverse program.Value // 1/X, exact except in the subnormal range; NaN in the same blocks
	finite  program.Value // bool: true for blocks without NaN or ±Inf
}

// newScale writes the scales of blocks v, float[…,blocks,32]:
//
//	ocp       X = 2^e           e = floor(log2 max|V|) − 2
//	round     X = 2^e           e likewise, after rounding max|V| to two significant bits
//	absmax34  X = (4/3)·2^e     e likewise, so that |V/X| < 6
//	quest     X = 2^e           e = floor(log2((2.92247856/6)·std V + 1e-8))
//
// e is kept in −127…127. The logarithm is exact, because it is read from the
// representation. The ratio V/X has to be computed as V·inverse: inverse is a power of
// two, or ¾ of one, so that ties stay ties.
//
// In binary32 the quest rule also counts a block as not finite when its squares overflow,
// at magnitudes of about 1e19.
func newScale(v program.Value, rule string) scale {
	b := v.Builder()
	gain := 1.0
	var exponent, finite program.Value
	if rule == ruleQuest {
		std := deviation(v)
		finite = std.IsFinite()
		exponent = std.Scale(questLargest / microscaling.LargestE2M1).Shift(questEps).Logb()
	} else {
		largest := v.Abs().MaxRow()
		finite = largest.IsFinite()
		exponent = largest.Logb()
		switch rule {
		case ruleAbsMax34:
			gain = rangeGain
		case ruleRound: // from 1.75·2^k on, the maximum is rounded to 2^(k+1)
			exponent = largest.Div(b.Const(1.75)).Logb().Shift(1)
		}
		exponent = exponent.Shift(-microscaling.LargestExponentE2M1)
	}
	exponent = exponent.Clip(-largestExponent, largestExponent)
	nan := b.Const(math.NaN())
	return scale{
		scale:   finite.Select(b.Const(1/gain).Ldexp(exponent), nan),
		inverse: finite.Select(b.Const(gain).Ldexp(exponent.Neg()), nan),
		finite:  finite,
	}
}

// deviation is the population standard deviation of each block, including the zeros that
// fill up a short one. It subtracts the mean first, which costs one pass more than
// E[V²] − E[V]². In binary32 that formula has no correct digit if the deviation is below a
// thousandth of the mean.
func deviation(v program.Value) program.Value {
	return v.Sub(v.MeanRow()).Square().MeanRow().Sqrt()
}
