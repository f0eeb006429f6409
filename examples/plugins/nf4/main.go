// Command nf4 is the 4-bit NormalFloat of QLoRA (Dettmers et al. 2023, 2305.14314): blocks of a row
// share a scale, their largest magnitude, and each entry becomes the nearest of 16 numbers between
// −1 and 1, times the scale. The numbers are quantiles of the normal distribution, and one of them
// is 0.
//
// QLoRA also stores the scales themselves in 8 bits ("double quantization"). Here they are numbers
// of the type scale_dtype.
package main

import (
	"math"

	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/microscaling"
	"github.com/cage-qat/cage/sdk/program"
)

type nf4 struct{}

func (nf4) Describe() sdk.Description {
	return sdk.Description{
		Name:    "nf4",
		Version: "1.0.0",
		Doc: "NF4 (QLoRA): the nearest of 16 quantiles of the normal distribution, times the " +
			"largest magnitude of a block.",
		Parameters: []sdk.Parameter{
			sdk.Int("block", 64, 1, 1<<20,
				"consecutive entries of a row that share a scale; the last block of a row may be shorter"),
			microscaling.ScaleParameter(),
		},
		Claims: []sdk.Claim{
			{Name: sdk.ClaimAnyZeroCode},
			{Name: sdk.ClaimScaleScope, Value: sdk.ScopeBlock},
		},
	}
}

// levels are the numbers of table E of the paper, as the authors' library (bitsandbytes) has them.
var levels = []float64{
	-1, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453,
	-0.28444138169288635, -0.18477343022823334, -0.09105003625154495, 0,
	0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224,
	0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1,
}

// codeOfZero is the place of 0 among the levels.
const codeOfZero = 7

// leastScale keeps the scale of a block of zeros away from zero.
const leastScale = 0x1p-126

// Quantize writes Q(x) for one weight or activation.
func (nf4) Quantize(b *program.Builder, x program.Value, site sdk.Site) (sdk.Quantized, error) {
	blocks, table := newBlocks(site), b.Table(levels, len(levels))
	v := blocks.Split(x)
	largest := v.Abs().MaxRow()
	finite := largest.IsFinite() // otherwise the scale, and with it the block, becomes NaN
	scale := microscaling.ScaleTypeOf(site).Round(largest.Max(b.Const(leastScale)))
	scale = finite.Select(scale, b.Const(math.NaN()))
	codes := v.Div(scale).Nearest(table)
	return sdk.Quantized{
		Value:       blocks.Join(codes.Lookup(table).Mul(scale)),
		Codes:       blocks.Join(finite.Select(codes, b.ConstInt(codeOfZero))),
		Scale:       scale,
		Homogeneous: microscaling.ScaleTypeOf(site) == microscaling.ScaleF32,
	}, nil
}

// Unpack looks up the levels of codes.
func (nf4) Unpack(
	b *program.Builder, codes, scale program.Value, site sdk.Site,
) (program.Value, error) {
	blocks := newBlocks(site)
	return blocks.Join(blocks.Split(codes).Lookup(b.Table(levels, len(levels))).Mul(scale)), nil
}

func newBlocks(site sdk.Site) microscaling.Blocks {
	return microscaling.NewBlocks(site.Shape, min(site.Int("block"), site.RowLen()))
}

func main() { sdk.ServeQuantizer(nf4{}) }
