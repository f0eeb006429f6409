// Command percentile clips each row at a quantile of its magnitudes and rounds it to an even grid
// up to there, so that a few outliers do not make the steps of all others coarse (the percentile
// calibration of Wu et al. 2020, 2004.09602, §5.1, taken anew in each step). What is clipped gets
// no gradient.
package main

import (
	"math"

	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/program"
)

type percentile struct{}

func (percentile) Describe() sdk.Description {
	return sdk.Description{
		Name:    "percentile",
		Version: "1.0.0",
		Doc: "Integers with one scale for each row, clipped at a quantile of the magnitudes of the " +
			"row.",
		Parameters: []sdk.Parameter{
			sdk.Int("bits", 4, 2, 8, "bits of a code, with its sign"),
			sdk.Float("quantile", 0.99, 0.5, 1, "part of a row that is not clipped"),
		},
	}
}

// leastScale keeps the scale of a row of zeros, or of tiny numbers, away from zero.
const leastScale = 0x1p-126

// Quantize writes Q(x) for one weight or activation.
func (percentile) Quantize(
	b *program.Builder, x program.Value, site sdk.Site,
) (sdk.Quantized, error) {
	top := float64(int(1)<<(site.Int("bits")-1) - 1)
	magnitude := x.Abs()
	bound := magnitude.QuantileRow(site.Float("quantile"))
	finite := magnitude.MaxRow().IsFinite() // otherwise the scale, and with it the row, becomes NaN
	scale := finite.Select(bound.Scale(1/top).Max(b.Const(leastScale)), b.Const(math.NaN()))
	inside := finite.And(magnitude.Le(bound))
	codes := x.Div(scale).Round().Clip(-top, top)
	return sdk.Quantized{
		Value:       codes.Mul(scale),
		Surrogate:   inside.Select(x, b.Const(0)),
		Codes:       finite.Select(codes, b.Const(0)),
		Scale:       scale,
		Grid:        sdk.Integers(-int(top), int(top), 0),
		Mask:        inside,
		Homogeneous: true,
	}, nil
}

// Unpack writes Q(x) from its codes and scales.
func (percentile) Unpack(
	_ *program.Builder, codes, scale program.Value, _ sdk.Site,
) (program.Value, error) {
	return codes.Mul(scale), nil
}

func main() { sdk.ServeQuantizer(percentile{}) }
