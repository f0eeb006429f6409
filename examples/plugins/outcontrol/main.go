// Command outcontrol is the quantizer of the forward product in TetraJet-v2: NVFP4 with a second
// scale for each 128 entries, and with some columns in MXFP8 ("OutControl", which keeps outliers).
// Both operands of a product x·Wᵀ have the same columns in MXFP8: of the columns that it sums over,
// those in which x has the largest mean magnitude in the first batch, rounded up to a whole number.
// They stay as they are.
//
// All columns are put into the descending order of these means, so that those of a block are
// similar. In blocks of 32, for the first columns, with M the largest magnitude of a block,
//
//	Q(v) = E4M3(v/2ᵉ)·2ᵉ,   e = ⌈log₂(M/448)⌉
//
// and for the others, in blocks of 128 and in each of their eighths, with M₁₂₈ and M₁₆,
//
//	g = M₁₂₈/448/6,   s = E4M3(M₁₆/g/6)·g,   Q(v) = E2M1(v/s)·s
//
// Gradients pass unchanged. (Chen et al., "TetraJet-v2: Accurate NVFP4 Training for Large Language
// Models with Oscillation Suppression and Outlier Control", 2025, arXiv 2510.27527;
// thu-ml/TetraJet-v2-NVFP4Training at ca5953f6, linear_mix.py and calibrate.py of
// olmo2-training/olmo/quantization_real.)
//
// The authors' code takes the Euclidean norms of columns, summed over steps 501 to 550, and a
// multiple of 128 columns, as their paper does not. In the product that gives the gradient of W
// they have x and dy a second time, in MXFP8, for the columns that are wide. Here that product has
// one dy: what is quantized for it is Q(x), with its wide columns. Values are given without codes.
package main

import (
	"math"

	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/microscaling"
	"github.com/cage-qat/cage/sdk/program"
)

// The blocks of entries of a row that share a scale: of 2ᵉ, of E4M3, and of g.
const (
	wideBlock  = 32
	innerBlock = 16
	outerBlock = 128
)

type outcontrol struct{}

var (
	_ sdk.Quantizer = outcontrol{}
	_ sdk.Stateful  = outcontrol{}
)

func (outcontrol) Describe() sdk.Description {
	return sdk.Description{
		Name:    "outcontrol",
		Version: "1.0.0",
		Doc: "NVFP4 with the columns in MXFP8 in which activations are large (TetraJet-v2, Chen et " +
			"al. 2025).",
		Parameters: []sdk.Parameter{
			sdk.Float("wide", 0.1, 0, 1,
				"part of the columns that are in MXFP8, rounded up; at least one column stays in NVFP4"),
		},
	}
}

// place is the name of the state: where each column stands in the descending order of magnitudes,
// from 0.
const place = "place"

// wideColumns is how many columns are in MXFP8. What a product of floats is too large by makes no
// column more.
func wideColumns(site sdk.Site) int {
	n := site.RowLen()
	return min(int(math.Ceil(site.Float("wide")*float64(n)-1e-9)), n-1)
}

// InitState counts for each column those that stand before it.
func (outcontrol) InitState(b *program.Builder, _ program.Value, site sdk.Site) (sdk.State, error) {
	n := site.RowLen()
	if wideColumns(site) == 0 {
		return nil, nil
	}
	if site.Role != sdk.RoleActivation && site.Role != sdk.RoleWeight {
		return nil, sdk.Refuse(
			"a %s is not multiplied with a weight: give wide = 0, with which no columns are kept", site.Role)
	}
	mean := site.Activations.Mean
	mean = mean.IsFinite().Select(mean, b.Const(math.Inf(1)))
	other, own := mean.Reshape(1, n), mean.Reshape(n, 1)
	square := program.Type{DType: program.Int, Shape: []int{n, n}}
	earlier := b.Iota(square, 1).Lt(b.Iota(square, 0))
	before := other.Gt(own).Or(other.Eq(own).And(earlier))
	return sdk.State{place: before.Convert(program.Float).ReduceSum(1)}, nil
}

// Quantize writes Q(x).
func (outcontrol) Quantize(
	b *program.Builder, x program.Value, site sdk.Site,
) (sdk.Quantized, error) {
	finite := x.Abs().MaxRow().IsFinite() // otherwise the row becomes NaN
	out := sdk.Quantized{Surrogate: finite.Select(x, b.Const(0)),
		Mask: finite.Broadcast(site.Shape, nil), Next: site.State}
	n := site.RowLen()
	rows := x.Reshape(int(x.Type().Size())/n, n)
	wide := wideColumns(site)
	var value program.Value
	if wide == 0 {
		value = nvfp4(rows)
	} else {
		to := site.State[place].Convert(program.Int)
		from := to.ScatterAdd(b.Iota(program.Type{DType: program.Float, Shape: []int{n}}, 0), n).
			Convert(program.Int)
		ordered := columns(rows, from)
		value = columns(mxfp8(ordered.At(1, 0, wide)).Concatenate(1, nvfp4(ordered.At(1, wide, n))), to)
	}
	out.Value = finite.Select(value.Reshape(site.Shape...), b.Const(math.NaN()))
	return out, nil
}

// columns are those of a matrix with the given indices.
func columns(x, at program.Value) program.Value {
	return at.Lookup(x.Transpose(1, 0)).Transpose(1, 0)
}

// mxfp8 writes Q of rows in MXFP8.
func mxfp8(x program.Value) program.Value {
	blocks := microscaling.NewBlocks(x.Shape(), wideBlock)
	v := blocks.Split(x)
	scale := v.Abs().MaxRow().Scale(1.0 / microscaling.LargestE4M3)
	below := scale.Logb().Clip(-127, 127) // the scales that there are
	e := below.Add(scale.Gt(x.Builder().Const(1).Ldexp(below)).Convert(program.Float)).Clip(-127, 127)
	return blocks.Join(microscaling.RoundE4M3(v.Ldexp(e.Neg())).Ldexp(e))
}

// nvfp4 writes Q of rows in NVFP4.
func nvfp4(x program.Value) program.Value {
	b := x.Builder()
	blocks := microscaling.NewBlocks(x.Shape(), outerBlock)
	outer := blocks.Split(x)
	g := microscaling.Single(outer.Abs().MaxRow().Div(b.Const(microscaling.LargestE4M3)).
		Div(b.Const(microscaling.LargestE2M1)))
	g = g.Eq(b.Const(0)).Select(b.Const(1), g).Reshape(append(outer.Shape()[:2], 1, 1)...)
	inner := outer.Reshape(outer.Shape()[0], outer.Shape()[1], outerBlock/innerBlock, innerBlock)
	scale := microscaling.RoundE4M3(inner.Abs().MaxRow().Div(g).
		Div(b.Const(microscaling.LargestE2M1))).Mul(g)
	divisor := scale.Eq(b.Const(0)).Select(b.Const(math.Inf(1)), scale)
	value := microscaling.RoundE2M1(inner.Div(divisor), microscaling.TiesEven).Mul(scale)
	return blocks.Join(value.Reshape(outer.Shape()...))
}

func main() { sdk.ServeQuantizer(outcontrol{}) }
