// Command mxfp4 implements quantization to the MXFP4 format of the OCP Microscaling specification
// 1.0 as a plugin: blocks of 32 entries of a row share a power-of-two scale (E8M0), and each entry
// is a 4-bit float (E2M1). With V the entries of a block and X its scale,
//
//	P = E2M1(V/X) ; V̂ = X·P
//
// The sources of the rules for X are the OCP specification, Quartet and FP-Quant (IST-DASLab), and
// TetraJet (Chen et al. 2025). The entries may be rotated by a block Hadamard matrix before they
// are divided into blocks, z = Hx, and rotated back afterwards, x̂ = Hᵀẑ. The backward pass is
// dx = Hᵀ(M ⊙ H·dx̂), where M is the mask.
//
// Stochastic rounding rounds V/X to one of the two adjacent levels, so that the mean of V̂ is V
// unless V/X saturates, which it cannot with the scale rule absmax34. H may be preceded by random
// signs, the same for both operands of a product, as in Tseng et al., "Training LLMs with MXFP4"
// (2025), and in Quartet, to quantize the products of the backward pass. Evaluation rounds to
// nearest, without random signs.
//
// Quartet (Castro et al. 2025, arXiv 2505.14669; IST-DASLab/Quartet 00ccd38e,
// src/models/quantization) uses, in the forward product, scale_rule = "quest", rotation = "32",
// ties = "down" and the mask clip; in the other two products scale_rule = "absmax34",
// rounding = "stochastic" and rotation = "32". Its code applies the random signs after H, where
// they cancel in a product, because rounding commutes with negation: it computes the same as
// signs = "fixed". The paper's random rotation is signs = "random".
package main

import (
	"math"

	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/microscaling"
	"github.com/cage-qat/cage/sdk/program"
)

// block is the number of entries that share a scale.
const block = 32

type mxfp4 struct{}

var (
	_ sdk.Quantizer = mxfp4{}
	_ sdk.Packer    = mxfp4{}
)

// Values of the scale_rule and mask parameters.
const (
	ruleOCP      = "ocp"
	ruleRound    = "round"
	ruleAbsMax34 = "absmax34"
	ruleCeil     = "ceil"
	ruleQuest    = "quest"

	maskAuto  = "auto"
	maskNone  = "none"
	maskClip  = "clip"
	maskTrust = "trust"
)

// Describe declares the parameters.
func (mxfp4) Describe() sdk.Description {
	return sdk.Description{
		Name:    "mxfp4",
		Version: "1.1.0",
		Doc: "MXFP4 (OCP Microscaling 1.0): 4-bit floats (E2M1) with a power-of-two scale for each 32 " +
			"entries of a row; scale rules of the specification and of Quartet and FP-Quant.",
		Parameters: []sdk.Parameter{
			sdk.Choice("scale_rule", ruleOCP,
				[]string{ruleOCP, ruleRound, ruleAbsMax34, ruleCeil, ruleQuest},
				"ocp: the largest power of two up to the maximum, over 4; round: the same after rounding "+
					"the maximum to two significant bits, as inference programs do with activations; "+
					"absmax34: 4/3 of it, so that nothing saturates; ceil: the smallest power of two "+
					"with which nothing saturates (TetraJet); quest: from the standard deviation"),
			sdk.Choice("ties", string(microscaling.TiesEven), microscaling.TiesNames(),
				"level of a value halfway between two levels: the one with the even code, or with the "+
					"larger (away) or smaller (down) magnitude"),
			sdk.Choice("mask", maskAuto, []string{maskAuto, maskNone, maskClip, maskTrust},
				"entries that pass gradients: all, those below the largest level, or those within 1 of "+
					"their level in units of the scale; auto: clip for the quest rule, otherwise none"),
			sdk.Choice("rotation", microscaling.NoRotation,
				[]string{microscaling.NoRotation, "32", "64", "128"},
				"block of the Hadamard rotation, which must divide the row"),
			sdk.Choice("rounding", microscaling.RoundNearest,
				[]string{microscaling.RoundNearest, microscaling.RoundStochastic},
				"nearest; stochastic: up or down at random in training, without bias if nothing "+
					"saturates (scale_rule absmax34); ties then has no effect"),
			sdk.Choice("signs", microscaling.SignsFixed,
				[]string{microscaling.SignsFixed, microscaling.SignsRandom},
				"random: in training, entries get random signs before the rotation, new in each step "+
					"and the same for both operands of a product"),
		},
		Claims: []sdk.Claim{ // if nothing saturates
			{Name: sdk.ClaimUnbiased, When: map[string]any{
				"rounding": microscaling.RoundStochastic, "scale_rule": ruleAbsMax34, "mask": maskNone}},
		},
	}
}

// Quantize writes the program for one site.
func (mxfp4) Quantize(b *program.Builder, x program.Value, site sdk.Site) (sdk.Quantized, error) {
	rotation, err := microscaling.NewRotation(site.Text("rotation"), site.RowLen())
	if err != nil {
		return sdk.Quantized{}, err
	}
	var signs microscaling.Signs
	if site.Text("signs") == microscaling.SignsRandom {
		if rotation == 1 {
			return sdk.Quantized{}, sdk.Refuse("signs = %q have no effect without a rotation: "+
				"set rotation, such as \"32\"", microscaling.SignsRandom)
		}
		if site.Training {
			signs = microscaling.RandomSigns(b, site)
		}
	}
	z := rotation.Apply(signs.Apply(x))
	blocks := microscaling.NewBlocks(site.Shape, block)
	v := blocks.Split(z)
	s := newScale(v, site.Text("scale_rule"))
	ratio := v.Mul(s.inverse)
	rounded := microscaling.RoundAt(ratio, site)
	codes := s.finite.Select(microscaling.EncodeE2M1(rounded, signs.PositiveZeros(v)), b.ConstInt(0))
	out := sdk.Quantized{
		Value: signs.Apply(rotation.Apply(blocks.Join(rounded.Mul(s.scale)))),
		Codes: blocks.Join(codes),
		Scale: s.scale,
		Grid:  sdk.E2M1(block),
	}
	kind := site.Text("mask")
	switch {
	case kind != maskAuto:
	case site.Text("scale_rule") == ruleQuest:
		kind = maskClip
	default:
		kind = maskNone
	}
	if kind == maskNone {
		// M is constant along each block of the rotation, so rotations and signs cancel.
		out.Mask = blocks.Spread(s.finite)
		out.Surrogate = blocks.Join(s.finite.Select(blocks.Split(x), b.Const(0)))
	} else {
		// clip is |V/X| < 6, and trust is |V/X − P| ≤ 1; both are false for NaN. The latter is
		// equivalent to |V/X| ≤ 7: numbers up to 6 are within 1 of their nearest level, regardless
		// of ties, and the nearest level of larger ones is 6.
		size := ratio.Abs()
		var inside program.Value
		if kind == maskClip {
			inside = size.Lt(b.Const(microscaling.LargestE2M1))
		} else {
			inside = size.Le(b.Const(microscaling.LargestE2M1 + 1))
		}
		out.Mask = blocks.Join(inside)
		out.Surrogate = signs.Apply(rotation.Apply(blocks.Join(inside.Select(v, b.Const(0)))))
	}
	return out, nil
}

// Unpack writes X·P, rotated back, for evaluation, which has no random signs.
func (mxfp4) Unpack(_ *program.Builder, codes, scale program.Value,
	site sdk.Site) (program.Value, error) {
	return microscaling.Unpack(codes, scale, site, block)
}

const (
	// largestExponent bounds the exponents of E8M0: they are in −127…127.
	largestExponent = 127

	// rangeGain is the factor that absmax34 applies before rounding down to a power of two. With it
	// the maximum is below 6 units of that power, without it below 8.
	rangeGain = 0.75

	// questLargest is the largest level, in standard deviations, of E2M1 scaled to minimize the
	// squared error on a Gaussian (FP-Quant, quest rule).
	questLargest = 2.92247856
	questEps     = 1e-8 // added to the scale by the published kernels
)

// scale holds the scales of blocks. Its values have the shape […,blocks,1].
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
//	ceil      X = 2^e           e = ceil(log2(max|V|/6)), so that |V/X| ≤ 6
//	quest     X = 2^e           e = floor(log2((2.92247856/6)·std V + 1e-8))
//
// e is clipped to −127…127. The logarithm is exact, because it is read from the floating-point
// representation. The ratio V/X must be computed as V·inverse: inverse is a power of two, or ¾ of
// one, so that ties stay ties.
//
// In binary32 the quest rule also treats a block as not finite if its squares overflow, at
// magnitudes of about 1e19.
func newScale(v program.Value, rule string) scale {
	b := v.Builder()
	gain := 1.0
	var exponent, finite program.Value
	if rule == ruleQuest {
		// The population standard deviation, including the padding of a short block. Subtracting
		// the mean first costs one pass more than E[V²] − E[V]², which in binary32 has no correct
		// digit if the deviation is below a thousandth of the mean.
		std := v.Sub(v.MeanRow()).Square().MeanRow().Sqrt()
		finite = std.IsFinite()
		exponent = std.Scale(questLargest / microscaling.LargestE2M1).Shift(questEps).Logb()
	} else {
		largest := v.Abs().MaxRow()
		finite = largest.IsFinite()
		exponent = largest.Logb()
		switch rule {
		case ruleAbsMax34:
			gain = rangeGain
		case ruleRound: // from 1.75·2^k, the maximum rounds up to 2^(k+1)
			exponent = largest.Div(b.Const(1.75)).Logb().Shift(1)
		}
		exponent = exponent.Shift(-microscaling.LargestExponentE2M1)
		if rule == ruleCeil { // ⌈log2 a⌉ = −⌊log2 1/a⌋
			exponent = b.Const(microscaling.LargestE2M1).Div(largest).Logb().Neg()
		}
	}
	exponent = exponent.Clip(-largestExponent, largestExponent)
	nan := b.Const(math.NaN())
	return scale{
		scale:   finite.Select(b.Const(1/gain).Ldexp(exponent), nan),
		inverse: finite.Select(b.Const(gain).Ldexp(exponent.Neg()), nan),
		finite:  finite,
	}
}

func main() { sdk.ServeQuantizer(mxfp4{}) }
