// Command mseden implements MS-EDEN as a plugin: unbiased NVFP4 for the gradients of fully
// quantized training (Panferov et al. 2026, "Quartet II", arXiv 2601.22813).
//
// Stochastic rounding of each entry has more than twice the squared error of rounding to nearest.
// MS-EDEN rounds entries to nearest, which shrinks them on average, corrects the shrinkage by a
// factor per rotation, and stochastically rounds only the scales, which include the factor. With
// random signs D, the same for both operands of a product, a block Hadamard matrix H, and V the
// entries of a block of z = HDx,
//
//	g  = float32(max|z| / 255.99 / m)        m = 6/(17/16·0.93)
//	sB = E4M3(max|V| / m / g)                nearest
//	P  = E2M1(V/(sB·g))                      nearest
//	S  = Σ r² / Σ r·P                        r = V/(sB·g), over the entries of one rotation
//	x̂  = DH(P·E4M3(S·sB)·g)                  E4M3 with stochastic rounding
//
// Scales up to 256 instead of 448, the largest number of E4M3, leave headroom for S. Like EDEN
// (Vargaftik et al. 2022), on which it is based, MS-EDEN is unbiased if HD is a random rotation;
// for a block Hadamard matrix with random signs this holds approximately, and better for longer
// blocks.
//
// With rotation = "128" this is src/models/quantization/schemes/quartet_2.py (IST-DASLab/Quartet-II
// 8776a90b), with which the published models were trained. For normal numbers, ⟨x, x̂⟩ is 0.06 %
// below ‖x‖²; with rounding to nearest without correction it is 0.8 % below. The authors' released
// CUDA kernels compute the scales in another order, which is not offered here.
//
// Evaluation uses no signs and rounds scales to nearest.
package main

import (
	"math"

	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/microscaling"
	"github.com/cage-qat/cage/sdk/program"
)

const (
	block = 16 // number of entries that share an E4M3 scale

	// reach is m, the magnitude to which the largest entry of a block is scaled before rounding.
	// The authors' factor 17/16·0.93 minimizes the squared error for normal numbers.
	reach = microscaling.LargestE2M1 / (17. / 16 * 0.93)

	// largestScale bounds the scales before their multiplication by S.
	largestScale = 255.99
)

type mseden struct{}

var _ sdk.Quantizer = mseden{}

// Describe declares the parameters.
func (mseden) Describe() sdk.Description {
	return sdk.Description{
		Name:    "mseden",
		Version: "0.2.0",
		Doc: "MS-EDEN (Quartet II): NVFP4 without bias, for the operands of the backward pass. " +
			"Entries are rounded to nearest after a random rotation; scales, with a factor that " +
			"preserves magnitudes, are rounded stochastically.",
		Parameters: []sdk.Parameter{
			sdk.Choice("rotation", "32", []string{"32", "64", "128"}, "block of the random Hadamard "+
				"rotation, which must divide the row; the published models have 128"),
		},
		Claims: []sdk.Claim{
			{Name: sdk.ClaimScaleScope, Value: sdk.ScopeTensor},
			{Name: sdk.ClaimAnyRounding},
			{Name: sdk.ClaimUnbiased},
			{Name: sdk.ClaimTies},
		},
	}
}

// Quantize writes the program for one site. The returned scale of each block is E4M3(S·sB)·g.
func (mseden) Quantize(b *program.Builder, x program.Value, site sdk.Site) (sdk.Quantized, error) {
	rotation, err := microscaling.NewRotation(site.Text("rotation"), site.RowLen())
	if err != nil {
		return sdk.Quantized{}, err
	}
	var signs microscaling.Signs
	if site.Training {
		signs = microscaling.RandomSigns(b, site)
	}
	blocks := microscaling.NewBlocks(site.Shape, block)
	v := blocks.Split(rotation.Apply(signs.Apply(x)))

	largest := v.Abs().MaxRow()
	overall := largest.MaxAll()
	finite := overall.IsFinite()
	m := b.Const(reach)
	tensor := zeroToOne(microscaling.Single(overall.Div(b.Const(largestScale)).Div(m)))
	scale := zeroToOne(microscaling.RoundE4M3(largest.Div(m).Div(tensor)))
	ratio := v.Div(scale.Mul(tensor))
	rounded := microscaling.RoundE2M1(ratio, microscaling.TiesAway)

	scale = scale.Mul(correction(ratio, rounded, int(rotation)/block))
	if site.Training {
		uniform := microscaling.Uniform(b, site, scale.Shape()...)
		scale = microscaling.StochasticE4M3(scale, uniform)
	} else {
		scale = microscaling.RoundE4M3(scale)
	}
	// If an entry of the tensor is not finite, NaN scales make the whole tensor NaN.
	scale = finite.Select(scale.Mul(tensor), b.Const(math.NaN()))
	return sdk.Quantized{
		Value:     signs.Apply(rotation.Apply(blocks.Join(rounded.Mul(scale)))),
		Surrogate: finite.Select(x, b.Const(0)),
		Codes: blocks.Join(finite.Select(
			microscaling.EncodeE2M1(rounded, signs.PositiveZeros(v)), b.ConstInt(0))),
		Scale:       scale,
		Grid:        sdk.E2M1(block),
		Mask:        finite.Broadcast(site.Shape, nil),
		Homogeneous: true,
	}, nil
}

// zeroToOne replaces a scale of 0 by 1, to avoid a division by zero; such a block becomes zero.
func zeroToOne(scale program.Value) program.Value {
	b := scale.Builder()
	return scale.Eq(b.Const(0)).Select(b.Const(1), scale)
}

// correction returns S for each block. The n blocks of a rotation share it; it is 1 where all their
// entries are rounded to zero.
func correction(ratio, rounded program.Value, n int) program.Value {
	b := ratio.Builder()
	is, want := ratio.Mul(rounded).SumRow(), ratio.Square().SumRow()
	shape := is.Shape() // […, blocks, 1]
	inRotations := append(shape[:len(shape)-2:len(shape)-2], shape[len(shape)-2]/n, n)
	over := func(v program.Value) program.Value {
		sums := v.Reshape(inRotations...).SumRow()
		return sums.Broadcast(inRotations, nil).Reshape(shape...)
	}
	is, want = over(is), over(want)
	none := is.Eq(b.Const(0))
	return none.Select(b.Const(1), want.Div(none.Select(b.Const(1), is)))
}

func main() { sdk.ServeQuantizer(mseden{}) }
