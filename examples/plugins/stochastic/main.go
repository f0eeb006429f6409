// Command stochastic is stochastic rounding to integers of a few bits with one scale for
// each row,
//
//	s = max|x| / (2^(b−1) − 1)
//	Q(x) = s·⌊x/s + u⌋,  u uniform in [0, 1)
//
// so that the mean of Q(x) over the noise u is x: what is lost in one step comes back in
// others (Gupta et al., "Deep Learning with Limited Numerical Precision", ICML 2015, §3).
// Evaluation rounds to nearest.
package main

import (
	"math"

	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/program"
)

type stochastic struct{}

func (stochastic) Describe() sdk.Description {
	return sdk.Description{
		Name:    "stochastic",
		Version: "1.0.0",
		Doc: "Integers with one scale for each row, stochastic rounding (Gupta et al. 2015); " +
			"evaluation rounds to nearest.",
		Parameters: []sdk.Parameter{sdk.Int("bits", 4, 2, 8, "bits of a code, with its sign")},
		Claims: []sdk.Claim{
			{Name: sdk.ClaimAnyRounding},
			{Name: sdk.ClaimUnbiased},
			{Name: sdk.ClaimIdempotent},
		},
	}
}

// leastScale keeps the scale of a row of zeros, or of tiny numbers, away from zero.
const leastScale = 0x1p-126

// noiseBits is how many random bits u has. With more, x/s + u would be rounded in binary32 itself,
// and numbers on the grid would leave it now and then.
const noiseBits = 16

// Quantize writes Q(x) for one weight or activation; the last axis of x is a row.
func (stochastic) Quantize(
	b *program.Builder, x program.Value, site sdk.Site,
) (sdk.Quantized, error) {
	top := float64(int(1)<<(site.Int("bits")-1) - 1)
	largest := x.Abs().MaxRow()
	finite := largest.IsFinite() // otherwise the scale, and with it the row, becomes NaN
	scale := finite.Select(largest.Scale(1/top).Max(b.Const(leastScale)), b.Const(math.NaN()))
	ratio := x.Div(scale)
	codes := ratio.Round()
	if site.Training {
		bits := b.RandomBits(site.Noise, site.Shape...).Shr(b.ConstUint(32 - noiseBits))
		u := bits.Convert(program.Float).Shift(0.5).Scale(1 / float64(1<<noiseBits))
		codes = ratio.Add(u).Floor().Clip(-top, top)
	}
	return sdk.Quantized{
		Value:       codes.Mul(scale),
		Codes:       finite.Select(codes, b.Const(0)),
		Scale:       scale,
		Grid:        sdk.Integers(-int(top), int(top), 0),
		Homogeneous: true,
	}, nil
}

// Unpack writes Q(x) from its codes and scales.
func (stochastic) Unpack(
	_ *program.Builder, codes, scale program.Value, _ sdk.Site,
) (program.Value, error) {
	return codes.Mul(scale), nil
}

func main() { sdk.ServeQuantizer(stochastic{}) }
