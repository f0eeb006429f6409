// Command paretoq implements the ParetoQ quantizer as a plugin (Liu et al., "ParetoQ: Improving
// Scaling Laws in Extremely Low-bit LLM Quantization", 2025, arXiv 2502.02631): a separate grid for
// each number of bits, with a trained α for each row of a weight.
//
//	bits  levels, times α       clipped where       α at first    Q_P
//	1     ±1                    |x| > α             mean |x|      1
//	1.58  −2/3, 0, 2/3          |x| > 0.99·α        max |x|       1
//	2     ±1/4, ±3/4            |x| > 0.99·α        max |x|       1
//	3     −4 … 3                x < −4α, x > 3α     max |x|/Q_P   3
//	4     −8 … 7                x < −8α, x > 7α     max |x|/Q_P   7
//
// The second and third are the paper's stretched elastic quantization (SEQ), whose levels are the
// midpoints of equal intervals of −α … α; the last two are LSQ.
//
// The backward pass computes, from the gradient dx̂ of x̂ and for a tensor of N numbers:
//
//	dx = dx̂ where x is not clipped, else 0
//	dα = 1/√(N·Q_P)·Σ dx̂·(x̂/α − x/α, or where x is clipped the end of the grid)
//
// With one bit the sum is Σ dx̂·sign(x), clipped or not. Everything follows the published code
// (facebookresearch/ParetoQ, models/utils_quant.py and train.py, commit 655e3386), except that Q(0)
// with one bit is α here and 0 there, which one bit cannot represent. As there, dα (and only dα)
// takes ±1 instead of ±2/3 as the ends of the ternary grid. The paper's formula clips at α, not at
// 0.99·α; see the parameter clip. The authors quantize only weights; an activation has one α here.
//
// The effective α is max(α, 1e-5), but an α below that bound still gets its gradient.
package main

import (
	"math"

	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/microscaling"
	"github.com/cage-qat/cage/sdk/program"
)

type paretoq struct{}

var (
	_ sdk.Quantizer = paretoq{}
	_ sdk.Trainable = paretoq{}
	_ sdk.Packer    = paretoq{}
)

// trainedAlpha is the name of α, and smallestAlpha its lower bound, 1e-5 in binary32.
const (
	trainedAlpha  = "alpha"
	smallestAlpha = 0x1.4f8b58p-17
)

// Describe declares the parameters.
func (paretoq) Describe() sdk.Description {
	return sdk.Description{
		Name:    "paretoq",
		Version: "1.0.0",
		Doc: "ParetoQ (Liu et al. 2025): signs, ternary numbers and 2 bits by stretched elastic " +
			"quantization (SEQ), 3 and 4 bits by LSQ, with a trained scale for each row of a weight.",
		Parameters: []sdk.Parameter{
			sdk.Int("bits", 2, 0, 4, "bits of a code; 0: the codes −1, 0 and 1, which are 1.58 bits"),
			sdk.Float("clip", 0.99, 0.9, 1, "for ternary numbers and 2 bits: the fraction of α beyond "+
				"which numbers are clipped and get no gradient; 1 in the paper's formula"),
			microscaling.ScaleParameter(),
		},
		Claims: []sdk.Claim{{Name: sdk.ClaimIdempotent}},
	}
}

// InitTrained writes the initial α: float[…,1] for the rows of a weight, otherwise a scalar.
func (paretoq) InitTrained(b *program.Builder, x program.Value, site sdk.Site) (sdk.State, error) {
	g := newGrid(site)
	size := x.Abs()
	largest := g.fold(size, program.Value.MaxRow, program.Value.MaxAll)
	alpha := largest.Scale(1 / g.qp)
	if g.signs() {
		unit := largest.Max(b.Const(smallestAlpha)) // so that no sum exceeds the range of binary32
		alpha = g.fold(size.Div(unit), program.Value.MeanRow, program.Value.MeanAll).Mul(unit)
	}
	return sdk.State{trainedAlpha: alpha.Max(b.Const(smallestAlpha))}, nil
}

// Quantize writes the program for one site.
func (paretoq) Quantize(b *program.Builder, x program.Value, site sdk.Site) (sdk.Quantized, error) {
	g := newGrid(site)
	alpha, zero := site.Trained[trainedAlpha], b.Const(0)
	finite := g.fold(x, program.Value.MeanRow, program.Value.SumAll).IsFinite()
	step := alpha.Max(b.Const(smallestAlpha)).Scale(1 / g.reach)
	// If an element is NaN or ±Inf, a NaN step makes all elements that share α NaN.
	step = finite.Select(microscaling.ScaleTypeOf(site).RoundStep(step, g.shift > 0),
		b.Const(math.NaN()))
	level, deviation, inside := g.round(x.Div(step))
	codes, scale := finite.Select(level.Scale(g.codes), zero), step.Scale(1/g.codes)
	// The surrogate is a function linear in x and α whose gradients are dx and dα; the α of a row
	// that is not finite gets no gradient.
	trained := finite.Select(alpha.Scale(g.gradientScale/g.reach), zero)
	return sdk.Quantized{
		Value:     codes.Mul(scale),
		Surrogate: inside.Select(x, zero).Add(trained.Mul(deviation.StopGradient())),
		Codes:     codes.Convert(program.Int),
		Scale:     scale,
		Grid:      g.declared(),
		Mask:      inside,
	}, nil
}

// Unpack writes Q(x) from its codes and scales.
func (paretoq) Unpack(_ *program.Builder, codes, scale program.Value,
	_ sdk.Site) (program.Value, error) {
	return codes.Convert(program.Float).Mul(scale), nil
}

// grid is the grid in units of the step: the spacing of levels or, with one bit, α.
type grid struct {
	site  sdk.Site
	reach float64 // α in units of the step
	// least and most are the outermost levels minus shift, the offset of levels from the integers,
	// 0 or ½.
	least, most, shift float64
	// low and high are the clipping thresholds; beyond them dα has the factor lowEnd or highEnd.
	low, high, lowEnd, highEnd float64
	// codes is the factor from levels to codes: 2 if half-integers are stored as odd integers.
	codes             float64
	qp, gradientScale float64 // Q_P, and 1/√(N·Q_P)
}

func newGrid(site sdk.Site) grid {
	var g grid
	switch bits := site.Int("bits"); bits {
	case 0:
		g = grid{reach: 1.5, least: -1, most: 1, qp: 1}
	case 1:
		g = grid{reach: 1, low: -1, high: 1, qp: 1}
	case 2:
		g = grid{reach: 2, least: -2, most: 1, shift: 0.5, qp: 1}
	default:
		half := math.Ldexp(1, bits-1)
		g = grid{reach: 1, least: -half, most: half - 1, qp: half - 1}
		g.low, g.high, g.lowEnd, g.highEnd = g.least, g.most, g.least, g.most
	}
	if g.reach > 1 { // stretched
		g.high, g.highEnd = g.reach*site.Float("clip"), g.reach-g.shift
		g.low, g.lowEnd = -g.high, -g.highEnd
	}
	g.codes = 1 + 2*g.shift
	g.site = site
	g.gradientScale = 1 / math.Sqrt(float64(program.FloatType(site.Shape...).Size())*g.qp)
	return g
}

func (g grid) signs() bool { return g.site.Int("bits") == 1 }

func (g grid) declared() sdk.Grid {
	switch {
	case g.signs():
		return sdk.OddIntegers(1, 0)
	case g.shift > 0:
		return sdk.OddIntegers(int(2*(g.most+g.shift)), 0)
	}
	return sdk.Integers(int(g.least), int(g.most), 0)
}

// fold reduces over the elements that share α: it calls row for a weight and all for an activation.
func (g grid) fold(v program.Value, row, all func(program.Value) program.Value) program.Value {
	if g.site.Role == sdk.RoleWeight {
		return row(v)
	}
	return all(v)
}

// round returns, for each r = x/step, its level, the factor of dx̂ in dα (deviation), and whether r
// is inside the thresholds. Where r is NaN, inside is false, and the other two are undefined.
func (g grid) round(r program.Value) (level, deviation, inside program.Value) {
	b := r.Builder()
	inside = r.Ge(b.Const(g.low)).And(r.Le(b.Const(g.high)))
	positive := r.Ge(b.Const(0))
	if g.signs() {
		level = positive.Select(b.Const(1), b.Const(-1))
		return level, level, inside
	}
	level = r.Shift(-g.shift).Clip(g.least, g.most).Round().Shift(g.shift)
	end := positive.Select(b.Const(g.highEnd), b.Const(g.lowEnd))
	return level, inside.Select(level.Sub(r), end), inside
}

func main() { sdk.ServeQuantizer(paretoq{}) }
