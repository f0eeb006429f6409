// Command mseden is MS-EDEN as a plugin: unbiased NVFP4 for the gradients of fully quantized
// training (Panferov et al. 2026, "Quartet II", arXiv 2601.22813).
//
// Stochastic rounding of each entry has more than twice the squared error of rounding to nearest.
// MS-EDEN rounds entries to nearest, which shrinks them on average, corrects that by a factor for
// each rotation, and stochastically rounds only the scales, which include the factor. With random
// signs D, the same for both operands of a product, a block Hadamard matrix H, and V the entries of
// a block of z = HDx,
//
//	g  = float32(max|z| / 255.99 / m)        m = 6/scale_override
//	sB = E4M3(max|V| / m / g)                nearest
//	P  = E2M1(V/(sB·g))                      nearest
//	S  = Σ r² / Σ r·P                        r = V/(sB·g), over the entries of one rotation
//	x̂  = DH(P·E4M3(S·sB)·g)                  E4M3 with stochastic rounding
//
// 256 instead of 448, the largest number of E4M3, leaves room for S. Like EDEN (Vargaftik et al.
// 2022), on which it is based, MS-EDEN is unbiased if HD is a random rotation; for a block Hadamard
// matrix with random signs this holds approximately, and the better the longer the block.
//
// This is src/models/quantization/schemes/quartet_2.py (IST-DASLab/Quartet-II 8776a90b), with which
// the published models were trained, with rotation = "128". Alternatives:
//
//   - correction = "plain" uses V instead of r in the sums of S. Then ⟨x, x̂⟩ = ‖x‖², except for
//     the rounding of scales. With r, its relative error for normal numbers is −0.06 %; rounding
//     to nearest without correction has −0.8 %.
//   - correction = "block" has a separate S for each block, like the released kernels
//     (kernels/csrc/rht128_eden.cu), with form = "kernels": sB is max|V|/m, truncated to four
//     fractional bits; S·sB is rounded to bfloat16; and g is the largest S·sB divided by 256, so
//     that z is read only once. The kernels round ties to the even code and scales below 2⁻⁶ to
//     nearest; this plugin rounds such scales stochastically, too.
//
// Evaluation has no signs, and rounds scales to nearest.
package main

import (
	"math"

	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/microscaling"
	"github.com/cage-qat/cage/sdk/program"
)

const (
	// block is the number of entries that share an E4M3 scale.
	block = 16

	// roomBefore and roomAfter are the largest scales before and after multiplication by S.
	roomBefore = 255.99
	roomAfter  = 256

	// override minimizes the squared error for normal numbers: the authors' 17/16·0.93.
	override = 17. / 16 * 0.93
)

// mseden implements [sdk.Quantizer].
type mseden struct{}

var _ sdk.Quantizer = mseden{}

// The values of the parameters correction and form.
const (
	correctScaled = "scaled"
	correctPlain  = "plain"
	correctBlock  = "block"

	formScheme  = "scheme"
	formKernels = "kernels"
)

// Describe declares the parameters.
func (mseden) Describe() sdk.Description {
	return sdk.Description{
		Name:    "mseden",
		Version: "0.1.0",
		Doc: "MS-EDEN (Quartet II): NVFP4 without bias. Entries are rounded to nearest after a random rotation, and scales, with a factor " +
			"that keeps magnitudes, at random; for the operands of the backward pass.",
		Parameters: []sdk.Parameter{
			sdk.Choice("rotation", "32", []string{"32", "64", "128"}, "block of the random Hadamard rotation, which has to divide the row; the published models have 128"),
			sdk.Choice("correction", correctScaled, []string{correctScaled, correctPlain, correctBlock},
				"what the factor of the scales keeps; scaled: of the entries of a rotation, in units of the scales of their blocks, as in the published models; plain: of these entries themselves; block: of each block"),
			sdk.Choice("form", formScheme, []string{formScheme, formKernels},
				"scheme: the scale of the tensor follows from its largest entry; kernels: from the largest scale of a block, as in the released kernels"),
			sdk.Choice("ties", string(microscaling.TiesAway), microscaling.TiesNames(),
				"where a value half way between two levels goes: to the even code, or to the larger (away) or smaller (down) magnitude; the released kernels have even"),
			sdk.Float("scale_override", override, 0.9, 1.5, "the largest entry of a block becomes 6 over this before rounding: below 1 it saturates, above 1 there is room above it"),
		},
		Claims: []sdk.Claim{
			{Name: sdk.ClaimScaleScope, Value: sdk.ScopeTensor},
			{Name: sdk.ClaimAnyRounding},
			{Name: sdk.ClaimUnbiased},
			{Name: sdk.ClaimTies},
		},
	}
}

// Quantize writes the program of one site. The returned scale of each block is E4M3(S·sB)·g.
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
	s := newScales(v, site)
	ratio := v.Div(s.divisor)
	rounded := microscaling.RoundE2M1(ratio, microscaling.Ties(site.Text("ties")))
	scale := s.corrected(correction(ratio, rounded, s.weight, rotation, site), site)
	return sdk.Quantized{
		Value:       signs.Apply(rotation.Apply(blocks.Join(rounded.Mul(scale)))),
		Surrogate:   s.finite.Select(x, b.Const(0)),
		Codes:       blocks.Join(s.finite.Select(microscaling.EncodeE2M1(rounded, signs.PositiveZeros(v)), b.ConstInt(0))),
		Scale:       scale,
		Grid:        sdk.E2M1(block),
		Mask:        s.finite.Broadcast(site.Shape, nil),
		Homogeneous: true,
	}, nil
}

// scales holds the scales of a tensor before the correction. All but tensor and finite are
// float[…,blocks,1].
type scales struct {
	block   program.Value // sB, in units of tensor; in the kernels form in units of x
	tensor  program.Value // g, a scalar; absent in the kernels form
	divisor program.Value // divisor of blocks before rounding
	weight  program.Value // block, scaled down so that squares cannot overflow
	finite  program.Value // bool, a scalar: true if the tensor contains neither NaN nor ±Inf
}

// newScales writes the scales of blocks v, float[…,blocks,16]. A zero sB is
// replaced by 1 to avoid a division by zero; such a block quantizes to zeros.
func newScales(v program.Value, site sdk.Site) (s scales) {
	b := v.Builder()
	largest := v.Abs().MaxRow()
	overall := largest.MaxAll()
	s.finite = overall.IsFinite()
	reach := b.Const(microscaling.LargestE2M1 / site.Float("scale_override"))
	if site.Text("form") == formKernels {
		s.block = digits(largest.Div(reach), 4, program.Value.Floor)
		s.divisor = one(s.block)
		s.weight = s.block.Div(one(s.block.MaxAll()))
		return s
	}
	s.tensor = one(microscaling.Single(overall.Div(b.Const(roomBefore)).Div(reach)))
	s.block = one(microscaling.RoundE4M3(largest.Div(reach).Div(s.tensor)))
	s.divisor = s.block.Mul(s.tensor)
	s.weight = s.block
	return s
}

// one replaces a scale of 0 by 1.
func one(scale program.Value) program.Value {
	b := scale.Builder()
	return scale.Eq(b.Const(0)).Select(b.Const(1), scale)
}

// correction returns S for each block, float[…,blocks,1], or float[…,1,1] for all blocks of a
// rotation; 1 where everything is rounded to zero.
func correction(ratio, rounded, weight program.Value, rotation microscaling.Rotation, site sdk.Site) program.Value {
	b := ratio.Builder()
	if site.Text("correction") == correctPlain {
		ratio, rounded = ratio.Mul(weight), rounded.Mul(weight)
	}
	is, want := ratio.Mul(rounded).SumRow(), ratio.Square().SumRow()
	if n := int(rotation) / block; site.Text("correction") != correctBlock && n > 1 {
		shape := is.Shape()
		inRotations := append(shape[:len(shape)-2:len(shape)-2], shape[len(shape)-2]/n, n)
		over := func(v program.Value) program.Value {
			sums := v.Reshape(inRotations...).SumRow()
			return sums.Broadcast(inRotations, nil).Reshape(shape...)
		}
		is, want = over(is), over(want)
	}
	none := is.Eq(b.Const(0))
	return none.Select(b.Const(1), want.Div(none.Select(b.Const(1), is)))
}

// corrected rounds the scales of blocks, multiplied by their factors, to E4M3 and returns them in
// units of x; NaN everywhere if the tensor is not finite.
func (s scales) corrected(factor program.Value, site sdk.Site) program.Value {
	b := factor.Builder()
	scale := s.block.Mul(factor)
	if site.Text("form") == formKernels {
		scale = digits(scale, 7, program.Value.Round)
		s.tensor = one(microscaling.Single(scale.MaxAll().Div(b.Const(roomAfter))))
		scale = scale.Div(s.tensor)
	}
	if site.Training {
		scale = microscaling.StochasticE4M3(scale, microscaling.Uniform(b, site, scale.Shape()...))
	} else {
		scale = microscaling.RoundE4M3(scale)
	}
	return s.finite.Select(scale.Mul(s.tensor), b.Const(math.NaN()))
}

// digits rounds nonnegative numbers to n binary digits after the leading one.
func digits(v program.Value, n int, round func(program.Value) program.Value) program.Value {
	unit := v.Logb().Shift(float64(-n)).Clip(-149, 127)
	return round(v.Ldexp(unit.Neg())).Ldexp(unit)
}

func main() { sdk.ServeQuantizer(mseden{}) }
