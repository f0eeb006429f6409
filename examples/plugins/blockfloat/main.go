// Command blockfloat is block floating point with one exponent for each row: integers
// of a few bits times a power of two, so that dequantization is a shift.
package main

import (
	"math"

	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/program"
)

type blockfloat struct{}

func (blockfloat) Describe() sdk.Description {
	return sdk.Description{
		Name:       "blockfloat",
		Doc:        "Block floating point with one exponent for each row.",
		Parameters: []sdk.Parameter{sdk.Int("bits", 4, 2, 8, "bits of a code, with its sign")},
	}
}

// Quantize writes Q(x) for one weight or activation; the last axis of x is a row.
func (blockfloat) Quantize(
	b *program.Builder, x program.Value, site sdk.Site,
) (sdk.Quantized, error) {
	bits := site.Int("bits")
	top := float64(int(1)<<(bits-1) - 1)
	largest := x.Abs().MaxRow()
	finite := largest.IsFinite()                  // otherwise the scale and the row become NaN
	exponent := largest.Logb().Max(b.Const(-100)) // of a row of zeros it is −∞
	scale := finite.Select(b.Const(1).Ldexp(exponent.Shift(float64(2-bits))), b.Const(math.NaN()))
	codes := x.Div(scale).Round().Clip(-top, top)
	return sdk.Quantized{Value: codes.Mul(scale), Codes: finite.Select(codes, b.Const(0)),
		Scale: scale}, nil
}

func main() { sdk.ServeQuantizer(blockfloat{}) }
