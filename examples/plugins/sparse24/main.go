// Command sparse24 keeps the two entries of largest magnitude of each four consecutive ones of a
// row, and makes the others zero: 2:4 sparsity, which products of matrices on some GPUs compute at
// twice the speed (Mishra et al. 2021, 2104.08378). What is kept stays as it is, or becomes
// integers of a few bits with one scale for each row.
//
// Gradients pass to all entries, so that what was pruned can come back, as in SR-STE (Zhou et al.
// 2021, 2102.04010). Its other half, a decay of the pruned weights, is what the correction of CAGE
// does with them: their error x − Q(x) is x. With gradient = "kept" they get no gradient.
package main

import (
	"math"

	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/microscaling"
	"github.com/cage-qat/cage/sdk/program"
)

type sparse24 struct{}

// The values of the parameter gradient.
const (
	toAll  = "all"
	toKept = "kept"
)

func (sparse24) Describe() sdk.Description {
	return sdk.Description{
		Name:    "sparse24",
		Version: "1.0.0",
		Doc: "2:4 sparsity: the two largest of each four entries of a row are kept, as they are or " +
			"as integers.",
		Parameters: []sdk.Parameter{
			sdk.Int("bits", 0, 0, 8,
				"bits of what is kept, with its sign, at least 2; 0 leaves it as it is"),
			sdk.Choice("gradient", toAll, []string{toAll, toKept},
				"entries that get gradients: all, or those that are kept"),
		},
		Claims: []sdk.Claim{{Name: sdk.ClaimPrunes}, {Name: sdk.ClaimAnyRounding}},
	}
}

// leastScale keeps the scale of a row of zeros away from zero.
const leastScale = 0x1p-126

// Quantize writes Q(x) for one weight or activation.
func (sparse24) Quantize(
	b *program.Builder, x program.Value, site sdk.Site,
) (sdk.Quantized, error) {
	fours := microscaling.NewBlocks(site.Shape, 4)
	kept := fours.Join(fours.Split(x.Abs()).TopK(b.ConstInt(2)))
	zero, nan := b.Const(0), b.Const(math.NaN())
	out := sdk.Quantized{Homogeneous: true}
	var finite program.Value // otherwise an entry becomes NaN, or the scale and with it a whole row
	switch bits := site.Int("bits"); {
	case bits == 1:
		return out, sdk.Refuse("bits = 1: what is kept needs at least 2 bits, or 0 to stay as it is")
	case bits == 0:
		finite = x.IsFinite()
		out.Value = kept.Select(finite.Select(x, nan), zero)
		out.Codes, out.Scale = finite.And(out.Value.Ne(zero)).Convert(program.Float), out.Value
	default:
		top := float64(int(1)<<(bits-1) - 1)
		largest := x.Abs().MaxRow()
		finite = largest.IsFinite()
		out.Scale = finite.Select(largest.Scale(1/top).Max(b.Const(leastScale)), nan)
		codes := kept.Select(x.Div(out.Scale).Round(), zero)
		out.Value, out.Codes = codes.Mul(out.Scale), finite.Select(codes, zero)
		out.Grid = sdk.Integers(-int(top), int(top), 0)
	}
	if site.Text("gradient") == toKept {
		out.Mask = kept.And(finite)
		out.Surrogate = out.Mask.Select(x, zero)
	}
	return out, nil
}

// Unpack multiplies codes and scales. What is kept as it is takes the place of scales, and its code
// is 1.
func (sparse24) Unpack(
	_ *program.Builder, codes, scale program.Value, _ sdk.Site,
) (program.Value, error) {
	return codes.Mul(scale), nil
}

func main() { sdk.ServeQuantizer(sparse24{}) }
