// Command lsq implements quantization with a learned step size as a plugin: LSQ (Esser et al.,
// "Learned Step Size Quantization", 2020) and LSQ+ (Bhalgat et al., "LSQ+: Improving Low-Bit
// Quantization through Learnable Offsets and Better Initialization", 2020). With a step s > 0,
// levels −Q_N … Q_P and, for the activations of LSQ+, an offset β:
//
//	r = (x − β)/s        x̂ = round(clip(r, −Q_N, Q_P))·s + β
//
// s and β are trained. With dx̂, the gradient of x̂, and gs = 1/√(N·Q_P) for N numbers that share
// the step, the backward pass computes:
//
//	dx = dx̂·[−Q_N < r < Q_P]
//	ds = gs·Σ dx̂·(−Q_N where r ≤ −Q_N; Q_P where r ≥ Q_P; round(r) − r between)
//	dβ = gs·Σ dx̂·[r ≤ −Q_N or r ≥ Q_P]
//
// For an activation, N is the number of features. init.go computes the initial values; sine.go
// computes dx for StableQAT, where the derivative of rounding is not 1 everywhere. The effective
// step is max(s, 1e-8), rounded to the type scale_dtype; the gradient ignores bound and rounding,
// so that training can increase an s below the bound.
package main

import (
	"math"

	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/microscaling"
	"github.com/cage-qat/cage/sdk/program"
)

type lsq struct{}

var (
	_ sdk.Quantizer = lsq{}
	_ sdk.Trainable = lsq{}
	_ sdk.Packer    = lsq{}
)

// Values of the variant, form, surrogate, levels and granularity parameters, and names of the
// trained parameters.
const (
	variantLSQ  = "lsq"
	variantPlus = "lsq+"

	formPaper     = "paper"
	formOfficial  = "official"
	formStableQAT = "stableqat"

	surrogateStraight = "straight"
	surrogateSine     = "sine"

	levelsSigned   = "signed"
	levelsUnsigned = "unsigned"

	perTensor = "tensor"
	perRow    = "row"

	trainedStep   = "step"
	trainedOffset = "offset"
)

// smallestStep is the lower bound of the step, smallestStableQAT the bound in the stableqat form.
const (
	smallestStep      = 1e-8
	smallestStableQAT = 1e-5
)

// Describe declares the parameters.
func (lsq) Describe() sdk.Description {
	return sdk.Description{
		Name:    "lsq",
		Version: "1.3.0",
		Doc: "Learned step sizes: LSQ (Esser et al. 2020), or LSQ+ (Bhalgat et al. 2020), where " +
			"activations have a learned offset, too, trained together with the weights. Gradients " +
			"pass straight through rounding, or as in StableQAT (Chen et al. 2026).",
		Parameters: []sdk.Parameter{
			sdk.Int("bits", 4, 1, 8, "bits of a code; 1 bit needs unsigned levels"),
			sdk.Choice("variant", variantLSQ, []string{variantLSQ, variantPlus}, "lsq+: activations have "+
				"an offset; the step of a weight starts from mean and deviation, that of an activation "+
				"from its range"),
			sdk.Choice("form", formPaper, []string{formPaper, formOfficial, formStableQAT},
				"integer levels and the gradients of the papers; half-integer levels, inclusive bounds "+
					"and initial values of QuEST's published code; or integer levels, inclusive bounds "+
					"and initial values of StableQAT's"),
			sdk.Choice("surrogate", surrogateStraight, []string{surrogateStraight, surrogateSine},
				"straight: rounding has the derivative 1; sine: that of StableQAT, small near the "+
					"levels and 1 halfway between them"),
			sdk.Choice("levels", levelsSigned, []string{levelsSigned, levelsUnsigned}, "unsigned: for "+
				"activations that are never negative, or that have an offset; never for weights"),
			sdk.Choice("granularity", perTensor, []string{perTensor, perRow},
				"what shares a step; activations have one for the tensor"),
			microscaling.ScaleParameter(),
		},
		Claims: []sdk.Claim{
			{Name: sdk.ClaimAnyGradient, When: map[string]any{"surrogate": surrogateSine}},
		},
	}
}

// Quantize writes the program for one site.
func (lsq) Quantize(b *program.Builder, x program.Value, site sdk.Site) (sdk.Quantized, error) {
	g, err := newGrid(site)
	if err != nil {
		return sdk.Quantized{}, err
	}
	step, offset := site.Trained[trainedStep], site.Trained[trainedOffset]
	finite := g.finite(x)
	// If an element is NaN or ±Inf, a NaN step makes all elements that share the step NaN.
	bounded := step.Max(b.Const(g.smallestStep()))
	s := microscaling.ScaleTypeOf(site).RoundStep(bounded, g.official())
	s = finite.Select(s, b.Const(math.NaN()))
	r := x // x in units of the step
	if offset.Valid() {
		r = r.Sub(offset)
	}
	level, deviation, inside := g.round(r.Div(s))
	var declared sdk.Grid // undeclared with an offset: values are then not products
	switch {
	case offset.Valid():
	case g.official():
		declared = sdk.Integers(int(1-2*g.qn), int(1+2*g.qp), 0)
		declared.Step = 2
	default:
		declared = sdk.Integers(-int(g.qn), int(g.qp), 0)
	}
	return sdk.Quantized{
		Value:     value(level, s, offset),
		Surrogate: g.surrogate(x, step, offset, finite, deviation, inside),
		Codes:     finite.Select(level.Scale(g.codes), b.Const(0)).Convert(program.Int),
		Scale:     pack(s.Scale(1/g.codes), offset),
		Grid:      declared,
		Mask:      inside,
	}, nil
}

// value computes x̂ from levels and the step, or from codes and the scale.
func value(level, scale, offset program.Value) program.Value {
	v := level.Mul(scale)
	if offset.Valid() {
		v = v.Add(offset)
	}
	return v
}

// surrogate writes a function of x, the step and the offset whose reverse pass computes dx, ds and
// dβ; its value is never used. It is linear in all three:
//
//	inside ? x·(derivative of rounding) : gs·β  +  gs·s·deviation
//
// The parameters of a group that is not finite get no gradient.
func (g grid) surrogate(x, step, offset, finite, deviation, inside program.Value) program.Value {
	zero := x.Builder().Const(0)
	trained := func(v program.Value) program.Value {
		return finite.Select(v.Scale(g.gradientScale), zero)
	}
	outside := zero
	if offset.Valid() {
		outside = trained(offset)
	}
	if g.site.Text("surrogate") == surrogateSine {
		derivative := sineDerivative(deviation)
		x = x.Mul(inside.Select(derivative, zero).StopGradient())
	}
	return inside.Select(x, outside).Add(trained(step).Mul(deviation.StopGradient()))
}

// pack concatenates the scale and the offset, if any, which Unpack takes as its scale.
func pack(scale, offset program.Value) program.Value {
	if !offset.Valid() {
		return scale
	}
	return scale.Reshape(1).Concatenate(0, offset.Reshape(1))
}

// Unpack writes scale·codes, plus the offset, if any.
func (lsq) Unpack(_ *program.Builder, codes, scale program.Value,
	site sdk.Site) (program.Value, error) {
	codes = codes.Convert(program.Float)
	if !hasOffset(site) {
		return value(codes, scale, program.Value{}), nil
	}
	part := func(i int) program.Value { return scale.Column(i).Reshape() }
	return value(codes, part(0), part(1)), nil
}

func hasOffset(site sdk.Site) bool {
	return site.Text("variant") == variantPlus && site.Role != sdk.RoleWeight
}

// check refuses settings that define no grid, or a grid that must be a mistake.
func check(site sdk.Site) error {
	signed := site.Text("levels") == levelsSigned
	switch {
	case signed && site.Int("bits") < 2:
		return sdk.Refuse("bits = 1: signed levels need at least 2 bits; use levels = %q for 1 bit",
			levelsUnsigned)
	case !signed && site.Role == sdk.RoleWeight:
		return sdk.Refuse("levels = %q: every negative weight would become zero; use levels = %q for "+
			"weights", levelsUnsigned, levelsSigned)
	case site.Text("form") == formStableQAT && site.Text("variant") == variantPlus:
		return sdk.Refuse("form = %q has no offsets: use variant = %q", formStableQAT, variantLSQ)
	case site.Text("granularity") == perRow && site.Role != sdk.RoleWeight:
		return sdk.Refuse("granularity = %q: the rows of an activation are tokens, which cannot have "+
			"learned steps; use granularity = %q", perRow, perTensor)
	}
	return nil
}

// grid is the quantizer configured for a site. In units of the step:
//
//	paper      levels −Q_N … Q_P, integers; dx passes where −Q_N < r < Q_P
//	official   levels −Q_N + ½ … Q_P + ½; dx passes where −Q_N ≤ r − ½ ≤ Q_P
//	stableqat  levels −Q_N … Q_P, integers; dx passes where −Q_N ≤ r ≤ Q_P
//
// The official form is LSQQuantizer of QuEST's published code (IST-DASLab/QuEST) with its default
// levels, "raise_zero", and the gradient of torch.clamp. There, N for an activation also counts the
// tokens. That code adds 1e-9·s to its output, which would move x̂ off the grid; it is omitted. Its
// recipes decay the step like a weight, which [[optimizer.groups]] with match = "quantizer.*" and
// weight_decay does here.
//
// The stableqat form is LsqBinaryTernaryExtension of StableQAT's published code
// (microsoft/StableQAT, models/utils_quant.py, commit 47605356), which adapts it from ParetoQ. N is
// the number of elements of the whole tensor there, even if each row has a step, and steps are at
// least 1e-5. Its recipes use granularity = "row" for weights and do not quantize activations.
// Initially the largest number of a row, if positive, is on the bound, so that a rounding error of
// r decides whether it is outside: training runs on different devices soon diverge.
type grid struct {
	site   sdk.Site
	qn, qp float64 // Q_N and Q_P
	// shift is the offset of the levels from the integers, 0 or ½. codes is the factor from levels
	// to codes: 1, or 2 if half-integers are stored as odd integers.
	shift, codes  float64
	gradientScale float64 // gs = 1/√(N·Q_P)
}

func newGrid(site sdk.Site) (grid, error) {
	if err := check(site); err != nil {
		return grid{}, err
	}
	n := math.Ldexp(1, site.Int("bits"))
	g := grid{site: site, qn: n / 2, qp: n/2 - 1, codes: 1}
	if site.Text("levels") == levelsUnsigned {
		g.qn, g.qp = 0, n-1
	}
	if g.official() {
		g.shift, g.codes = 0.5, 2
	}
	// For an activation in the paper form, N counts only the elements of one token.
	perStep := g.size()
	if !g.stable() && (g.rows() || !g.weight() && !g.official()) {
		perStep = site.RowLen()
	}
	g.gradientScale = 1 / math.Sqrt(float64(perStep)*g.qp)
	return g, nil
}

func (g grid) official() bool { return g.site.Text("form") == formOfficial }
func (g grid) stable() bool   { return g.site.Text("form") == formStableQAT }
func (g grid) rows() bool     { return g.site.Text("granularity") == perRow }
func (g grid) weight() bool   { return g.site.Role == sdk.RoleWeight }

func (g grid) smallestStep() float64 {
	if g.stable() {
		return smallestStableQAT
	}
	return smallestStep
}

func (g grid) size() int { return int(program.FloatType(g.site.Shape...).Size()) }

// round returns, for each r, its level, its deviation, and whether r is inside the bounds. The
// deviation is the factor of dx̂ in ds: level − r inside, and the level itself outside. The bounds
// are integers, so r may be clipped before or after rounding. Where r is NaN, inside is false, and
// level and deviation are undefined.
func (g grid) round(r program.Value) (level, deviation, inside program.Value) {
	b := r.Builder()
	if g.official() || g.stable() {
		shifted := r.Shift(-g.shift)
		clipped := shifted.Clip(-g.qn, g.qp)
		level, inside = clipped.Round().Shift(g.shift), shifted.Eq(clipped)
	} else {
		level = r.Clip(-g.qn, g.qp).Round()
		inside = r.Gt(b.Const(-g.qn)).And(r.Lt(b.Const(g.qp)))
	}
	return level, inside.Select(level.Sub(r), level), inside
}

// finite returns false for groups that contain NaN or ±Inf: the sum of such a group is not finite.
// In binary32 a sum also overflows if elements are near 1e38.
func (g grid) finite(x program.Value) program.Value {
	if g.rows() {
		return x.MeanRow().IsFinite()
	}
	return x.SumAll().IsFinite()
}

func main() { sdk.ServeQuantizer(lsq{}) }
