// Command quantizers is a collection of published quantizers in one plugin, each in a few lines, to
// read and to start from:
//
//	quantizer = {plugin = "./examples/methods/quantizers", method = "twn"}
//
// A method here is what the paper rounds to and how its gradient passes; what else a paper does to
// a network is not. Values are held to those of formulas in NumPy. Quantizers that need more are in
// the plugins under examples/plugins.
package main

import (
	"math"

	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/microscaling"
	"github.com/cage-qat/cage/sdk/program"
)

// A method is one quantizer.
type method struct {
	name     string
	quantize func(in input) sdk.Quantized
	trained  func(in input) sdk.State // initial values of trained parameters; nil: there are none
	state    func(in input) sdk.State // the state at the start, likewise
	// backward is the method's own backward pass; nil: that of the surrogate.
	backward func(in input, dy program.Value) sdk.Gradients
	claims   []sdk.ClaimName
}

// rounds is what methods claim that round to other levels than the nearest, drawn what those claim
// that draw a level so that the mean is x, and scaled that of levels that scale gradients, too.
var (
	rounds = []sdk.ClaimName{sdk.ClaimAnyRounding}
	drawn  = []sdk.ClaimName{sdk.ClaimAnyRounding, sdk.ClaimUnbiased}
	scaled = []sdk.ClaimName{sdk.ClaimAnyGradient, sdk.ClaimAnyRounding}
)

// methods are all quantizers of the collection.
var methods = []method{
	{name: "bwn", quantize: bwn},
	{name: "twn", quantize: twn},
	{name: "ttq", quantize: ttq, trained: ttqStart, claims: scaled},
	{name: "bitnet", quantize: bitnet},
	{name: "statsq", quantize: statsq},
	{name: "octav", quantize: octav, claims: []sdk.ClaimName{sdk.ClaimAnyGradient}},
	{name: "dampen", quantize: statsq, backward: dampen, claims: []sdk.ClaimName{sdk.ClaimOwnLoss}},
	{name: "affine", quantize: affine},
	{name: "hqq", quantize: hqq},
	{name: "spqr", quantize: spqr},
	{name: "quip", quantize: quip},
	{name: "pact", quantize: pact, trained: pactStart},
	{name: "lsqplus", quantize: lsqPlus, trained: lsqPlusStart},
	{name: "omniquant", quantize: omniQuant, trained: omniQuantStart},
	{name: "log2", quantize: logarithmic, claims: rounds},
	{name: "apot", quantize: apot},
	{name: "dsq", quantize: dsq, claims: []sdk.ClaimName{sdk.ClaimAnyGradient}},
	{name: "deepseek", quantize: deepSeek},
	{name: "qdrop", quantize: qDrop, claims: rounds},
	{name: "diffq", quantize: diffQ, claims: drawn},
	{name: "luq", quantize: luq, claims: drawn},
	{name: "observer", quantize: observer, state: observerStart},
	{name: "qema", quantize: qEMA, state: qEMAStart, claims: rounds},
	{name: "freezing", quantize: freezing, state: freezingStart, claims: rounds},
}

// input is what a quantizer reads.
type input struct {
	sdk.Site
	b *program.Builder
	x program.Value
}

// bwn (binary weights: Courbariaux et al. 2015; with a scale: XNOR-Net, Rastegari et al. 2016,
// arXiv 1603.05279): the sign times the mean magnitude of the row.
func bwn(in input) sdk.Quantized {
	q := in.grid(in.x.Ge(in.b.Const(0)).Select(in.b.Const(1), in.b.Const(-1)), in.x.Abs().MeanRow())
	q.Codes = program.Value{} // there is none for zero
	return q
}

// twn (ternary weight networks, Li et al. 2016, arXiv 1605.04711): ±scale beyond 0.7 of the mean
// magnitude; the scale is the mean of the magnitudes beyond.
func twn(in input) sdk.Quantized {
	codes := in.ternary(in.x.Abs().MeanRow().Scale(0.7))
	beyond := codes.Abs()
	scale := in.x.Abs().Mul(beyond).MeanRow().Div(beyond.MeanRow().Max(in.b.Const(tiny)))
	return in.grid(codes, scale)
}

// ttq (trained ternary quantization, Zhu et al. 2017, arXiv 1612.01064): ternary, with a trained
// level on each side. The threshold is 0.05 of the largest magnitude. A level gets the sum of its
// entries' gradients; an entry gets its own times its level.
func ttq(in input) sdk.Quantized {
	finite := in.x.Abs().MaxAll().IsFinite()
	codes := in.ternary(in.x.Abs().MaxAll().Scale(0.05))
	above, below := codes.Gt(in.b.Const(0)), codes.Lt(in.b.Const(0))
	up, down := in.Trained["above"], in.Trained["below"]
	level := above.Select(up, below.Select(down.Neg(), in.b.Const(0)))
	slope := above.Select(up, below.Select(down, in.b.Const(1))).StopGradient()
	return sdk.Quantized{
		Value:     in.poison(level, finite),
		Surrogate: finite.Select(in.x.Mul(slope), in.b.Const(0)).Add(finite.Select(level, in.b.Const(0))),
		Codes:     finite.Select(codes, in.b.Const(0)),
	}
}

func ttqStart(in input) sdk.State {
	start := in.x.Abs().SumAll().Scale(1 / float64(in.x.Type().Size())).Max(in.b.Const(tiny))
	return sdk.State{"above": start, "below": start}
}

// bitnet (b1.58, Ma et al. 2024, arXiv 2402.17764): ternary weights by the mean magnitude of the
// tensor, activations of eight bits by the largest magnitude of a token.
func bitnet(in input) sdk.Quantized {
	if in.Role != sdk.RoleWeight {
		return in.symmetric(in.x.Abs().MaxRow().Scale(1.0/127), 127)
	}
	scale := in.x.Abs().SumAll().Scale(1 / float64(in.x.Type().Size()))
	return in.symmetric(scale.Broadcast([]int{1, 1}, nil), 1)
}

// statsq (OFQ, Liu et al. 2023, arXiv 2302.02210): the scale is twice the mean magnitude of the
// row, for the largest code.
func statsq(in input) sdk.Quantized {
	return in.symmetric(in.x.Abs().MeanRow().Scale(2/in.top()), in.top())
}

// dampen (Nagel et al. 2022, arXiv 2203.11086): the gradient of a loss that draws what is not
// clipped to its level, beside the one that comes in, so that weights come to rest in the middle
// between two boundaries. The paper lets the factor grow over the training.
func dampen(in input, dy program.Value) sdk.Gradients {
	const factor = 1e-3
	if in.Role != sdk.RoleWeight {
		return sdk.Gradients{}
	}
	q := statsq(in)
	drawn := in.x.Sub(q.Value).Scale(2 * factor)
	return sdk.Gradients{X: q.Mask.Select(dy.Add(drawn), in.b.Const(0))}
}

// octav (Sakr et al. 2022, arXiv 2206.06501): the clipping bound that minimizes the squared error,
// by Newton's iterations of the paper, and its gradient, which is shortened outside of the bound
// and not zero.
func octav(in input) sdk.Quantized {
	const iterations = 12
	magnitude := in.x.Abs()
	bound := magnitude.MeanRow()
	noise := math.Pow(4, -float64(in.Int("bits"))) / 3
	for range iterations {
		outside := magnitude.Gt(bound).Convert(program.Float)
		inside := magnitude.Gt(in.b.Const(0)).Convert(program.Float).Sub(outside)
		bound = magnitude.Mul(outside).MeanRow().Div(inside.MeanRow().Scale(noise).Add(outside.MeanRow()).
			Max(in.b.Const(tiny)))
	}
	q := in.symmetric(bound.Scale(1/in.top()), in.top())
	finite, shortened := bound.IsFinite(), bound.Div(magnitude.Max(in.b.Const(tiny)))
	within := magnitude.Le(bound)
	slope := finite.Select(within.Select(in.b.Const(1), shortened), in.b.Const(0))
	q.Surrogate, q.Mask = finite.Select(in.x, in.b.Const(0)).Mul(slope.StopGradient()),
		finite.And(within)
	return q
}

// affine (Jacob et al. 2018, arXiv 1712.05877): codes from 0 with an offset, between the least and
// the largest number of a group, one of which may be 0. Group-wise it is what ZeroQuant (Yao et al.
// 2022) and most 4-bit weights of today are.
func affine(in input) sdk.Quantized {
	g := in.groups()
	x := g.Split(in.x)
	least, most := x.MinRow().Min(in.b.Const(0)), x.MaxRow().Max(in.b.Const(0))
	levels := 2*in.top() + 1
	finite := most.Sub(least).IsFinite()
	scale := in.poison(most.Sub(least).Scale(1/levels).Max(in.b.Const(tiny)), finite)
	zero := least.Neg().Div(scale).Round()
	codes := x.Div(scale).Round().Add(zero).Clip(0, levels).Sub(zero)
	return sdk.Quantized{
		Value:     g.Join(codes.Mul(scale)),
		Surrogate: g.Join(finite.Select(x, in.b.Const(0))),
		Codes:     g.Join(finite.Select(codes, in.b.Const(0))),
		Scale:     scale,
	}
}

// hqq (half-quadratic quantization, Badri and Shaji 2023): the offset of affine's codes is moved so
// that the error is sparse: a few steps between a shrunken error and the offset that fits it, with
// the exponent 0.7, and a weight that grows by 1 % each.
func hqq(in input) sdk.Quantized {
	const iterations, exponent, growth = 10, 0.7, 1.01
	g := in.groups()
	x := g.Split(in.x)
	least, most := x.MinRow(), x.MaxRow()
	levels := 2*in.top() + 1
	finite := most.Sub(least).IsFinite()
	// Where all numbers are nearly equal, means in units of the scale stay in the range of binary32.
	smallest := x.Abs().MaxRow().Scale(0x1p-24).Max(in.b.Const(tiny))
	scale := in.poison(most.Sub(least).Scale(1/levels).Max(smallest), finite)
	zero, weight := least.Neg().Div(scale), 10.0
	codesAt := func(zero program.Value) program.Value {
		return x.Div(scale).Add(zero).Round().Clip(0, levels)
	}
	for range iterations {
		codes := codesAt(zero)
		gap := x.Sub(codes.Sub(zero).Mul(scale))
		length := gap.Abs().Max(in.b.Const(tiny))
		shrunk := gap.Sign().Mul(length.Sub(length.Pow(in.b.Const(exponent - 1)).Scale(1 / weight)).
			Max(in.b.Const(0)))
		zero = codes.Sub(x.Sub(shrunk).Div(scale)).MeanRow()
		weight *= growth
	}
	codes := codesAt(zero)
	return sdk.Quantized{Value: g.Join(codes.Sub(zero).Mul(scale)),
		Surrogate: g.Join(finite.Select(x, in.b.Const(0)))}
}

// spqr (Dettmers et al. 2023, arXiv 2306.03078): entries beyond three deviations of their row stay
// as they are; the others set the scale.
func spqr(in input) sdk.Quantized {
	edge := in.x.Square().MeanRow().Sqrt().Scale(3)
	outlier := in.x.Abs().Gt(edge)
	rest := outlier.Select(in.b.Const(0), in.x)
	finite := edge.IsFinite()
	scale := in.poison(rest.Abs().MaxRow().Scale(1/in.top()).Max(in.b.Const(tiny)), finite)
	value := outlier.Select(in.poison(in.x, finite), rest.Div(scale).Round().Mul(scale))
	return sdk.Quantized{Value: value}
}

// quip (Chee et al. 2023, arXiv 2307.13304; the Hadamard form of QuIP#, Tseng et al. 2024): rows
// are turned by random signs and a Hadamard matrix before rounding, and back. The signs depend on
// the length of the rows alone, so that both operands of a product have the same.
func quip(in input) sdk.Quantized {
	d := in.RowLen()
	block := d & -d
	bits := in.b.RandomBits(in.b.Table([]float64{17, float64(d)}, 2).Convert(program.Uint), d)
	signs := bits.And(in.b.ConstUint(1)).Convert(program.Float).Scale(2).Shift(-1).Reshape(1, d)
	turned := in
	turned.x = in.x.Mul(signs)
	if block > 1 {
		turned.x = turned.x.Hadamard(block)
	}
	q := turned.symmetric(turned.x.Abs().MaxRow().Scale(1/in.top()), in.top())
	if block > 1 {
		q.Value, q.Surrogate = q.Value.Hadamard(block), q.Surrogate.Hadamard(block)
	}
	q.Value, q.Surrogate = q.Value.Mul(signs), q.Surrogate.Mul(signs)
	return q
}

// pact (Choi et al. 2018, arXiv 1805.06085), on both sides of zero: the bound is trained, by the
// gradients of what it clips.
func pact(in input) sdk.Quantized {
	bound := in.Trained["bound"].Max(in.b.Const(1e-6))
	finite := in.x.Abs().MaxAll().IsFinite()
	scale := in.poison(bound.Scale(1/in.top()), finite)
	codes := in.x.Div(scale).Clip(-in.top(), in.top()).Round()
	inside := finite.And(in.x.Abs().Le(bound))
	clipped := finite.Select(in.x.Sign(), in.b.Const(0)).StopGradient().Mul(bound)
	return sdk.Quantized{
		Value:     codes.Mul(scale),
		Surrogate: inside.Select(in.x, clipped),
		Codes:     finite.Select(codes, in.b.Const(0)),
		Scale:     scale,
		Mask:      inside,
	}
}

func pactStart(in input) sdk.State {
	return sdk.State{"bound": in.deviation().Scale(1.2 + 0.35*float64(in.Int("bits"))).
		Max(in.b.Const(1e-6))}
}

// lsqPlus (Bhalgat et al. 2020, arXiv 2004.09576): LSQ with a trained offset, for activations that
// are not about zero.
func lsqPlus(in input) sdk.Quantized {
	finite := in.x.Abs().MaxAll().IsFinite()
	step, offset := in.Trained["step"].Max(in.b.Const(1e-8)), in.Trained["offset"]
	scale := in.poison(step, finite)
	least, most := -in.top()-1, in.top()
	ratio := in.x.Sub(offset).Div(scale)
	codes := ratio.Clip(least, most).Round()
	inside := finite.And(ratio.Ge(in.b.Const(least))).And(ratio.Le(in.b.Const(most)))
	zero := in.b.Const(0)
	gain := 1 / math.Sqrt(float64(in.x.Type().Size())*most)
	slope := finite.Select(codes.Sub(inside.Select(ratio, zero)), zero).Scale(gain).StopGradient()
	beyond := inside.Select(zero, finite.Select(in.b.Const(gain), zero)).StopGradient()
	return sdk.Quantized{
		Value:     codes.Mul(scale).Add(offset),
		Surrogate: inside.Select(in.x, zero).Add(step.Mul(slope)).Add(offset.Mul(beyond)),
		Codes:     finite.Select(codes, zero),
		Scale:     scale,
		Mask:      inside,
	}
}

func lsqPlusStart(in input) sdk.State {
	mean := in.x.SumAll().Scale(1 / float64(in.x.Type().Size()))
	deviation := in.x.Sub(mean).Square().SumAll().Scale(1 / float64(in.x.Type().Size())).Sqrt()
	return sdk.State{"step": deviation.Scale((1.2 + 0.35*float64(in.Int("bits"))) / (in.top() + 0.5)).
		Max(in.b.Const(1e-6)), "offset": mean}
}

// omniQuant (learnable weight clipping, Shao et al. 2023, arXiv 2308.13137): what part of each
// row's range counts is trained, as a logistic function of a number for each end, which starts at
// 4.
func omniQuant(in input) sdk.Quantized {
	logistic := func(v program.Value) program.Value {
		return in.b.Const(1).Div(v.Neg().Exp().Shift(1))
	}
	most := in.x.Abs().MaxRow()
	finite := most.IsFinite()
	reach := finite.Select(most, in.b.Const(0)).StopGradient()
	bound := logistic(in.Trained["part"]).Mul(reach)
	scale := in.poison(bound.Scale(1/in.top()).Max(in.b.Const(tiny)), finite)
	codes := in.x.Div(scale).Clip(-in.top(), in.top()).Round()
	inside := finite.And(in.x.Abs().Le(bound))
	deviation := finite.Select(codes.Sub(inside.Select(in.x.Div(scale), in.b.Const(0))),
		in.b.Const(0)).StopGradient()
	return sdk.Quantized{
		Value:     codes.Mul(scale),
		Surrogate: inside.Select(in.x, in.b.Const(0)).Add(bound.Scale(1 / in.top()).Mul(deviation)),
		Codes:     finite.Select(codes, in.b.Const(0)),
		Scale:     scale,
		Mask:      inside,
	}
}

func omniQuantStart(in input) sdk.State {
	if in.Role != sdk.RoleWeight {
		return sdk.State{"part": in.b.Full(4, 1, 1)}
	}
	return sdk.State{"part": in.b.Full(4, in.Shape[0], 1)}
}

// logarithmic (Miyashita et al. 2016, arXiv 1603.01025): powers of two, the nearest by their
// exponents; numbers below the least are zero.
func logarithmic(in input) sdk.Quantized {
	magnitude := in.x.Abs()
	most := magnitude.MaxRow()
	finite := most.IsFinite()
	top := most.Max(in.b.Const(tiny)).Log().Scale(1 / math.Ln2).Round()
	exponent := magnitude.Max(in.b.Const(tiny)).Log().Scale(1 / math.Ln2).Round()
	least := top.Shift(1 - in.top())
	power := in.poison(in.b.Const(1), finite).Ldexp(exponent.Min(top))
	value := exponent.Lt(least).Select(in.b.Const(0), power.Mul(in.x.Sign()))
	return sdk.Quantized{Value: value.Mul(in.poison(in.b.Const(1), finite))}
}

// apot (additive powers of two, Li et al. 2020, arXiv 1909.13144), of four bits with the sign: sums
// of one of {0, ½, ¼, 1/16} and one of {0, ⅛}, as in the authors' code for three bits beside the
// sign, and the largest magnitude on the largest level.
func apot(in input) sdk.Quantized {
	levels := []float64{0, 0.1, 0.2, 0.3, 0.4, 0.6, 0.8, 1} // those sums over the largest, ⅝
	most := in.x.Abs().MaxRow()
	finite := most.IsFinite()
	scale := in.poison(most.Max(in.b.Const(tiny)), finite)
	ratio := in.x.Abs().Div(scale)
	level := in.b.Const(0)
	for i := 1; i < len(levels); i++ {
		beyond := ratio.Ge(in.b.Const((levels[i-1] + levels[i]) / 2))
		level = level.Add(beyond.Select(in.b.Const(levels[i]-levels[i-1]), in.b.Const(0)))
	}
	return sdk.Quantized{Value: level.Mul(in.x.Sign()).Mul(scale), Homogeneous: true}
}

// dsq (differentiable soft quantization, Gong et al. 2019, arXiv 1908.05033): rounding, with the
// gradient of a soft staircase whose steps are hyperbolic tangents.
func dsq(in input) sdk.Quantized {
	const softness = 0.2 // α of the paper; 0 is a staircase
	sharpness := math.Log(2/softness - 1)
	q := in.symmetric(in.x.Abs().MaxRow().Scale(1/in.top()), in.top())
	finite := in.x.Abs().MaxRow().IsFinite()
	scale := finite.Select(q.Scale, in.b.Const(1)).StopGradient()
	ratio := finite.Select(in.x, in.b.Const(0)).Div(scale)
	cell := ratio.Floor().StopGradient()
	step := ratio.Sub(cell).Shift(-0.5).Scale(sharpness).Tanh().Scale(0.5 / (1 - softness))
	q.Surrogate = finite.Select(step.Add(cell).Shift(0.5).Mul(scale), in.b.Const(0))
	return q
}

// deepSeek (DeepSeek-V3, 2024, arXiv 2412.19437, section 3.3): E4M3 with a scale for 128 numbers of
// a token, or for 128 × 128 of a weight.
func deepSeek(in input) sdk.Quantized {
	const block, largest = 128, 448
	g := microscaling.NewBlocks(in.Shape, block)
	x := g.Split(in.x)
	most := x.Abs().MaxRow()
	if in.Role == sdk.RoleWeight {
		most = overRows(most, block)
	}
	finite := most.IsFinite()
	scale := in.poison(most.Scale(1.0/largest).Max(in.b.Const(tiny)), finite)
	return sdk.Quantized{Value: g.Join(microscaling.RoundE4M3(x.Div(scale)).Mul(scale)),
		Surrogate: g.Join(finite.Select(x, in.b.Const(0))), Scale: scale}
}

// overRows is the maximum over blocks of rows of v, [rows, blocks, 1], in its shape.
func overRows(v program.Value, block int) program.Value {
	rows, blocks := v.Shape()[0], v.Shape()[1]
	var parts []program.Value
	for from := 0; from < rows; from += block {
		to := min(from+block, rows)
		part := v.Slice([]int{from, 0, 0}, []int{to, blocks, 1}, []int{1, 1, 1}).ReduceMax(0)
		parts = append(parts, part.Reshape(1, blocks, 1).Broadcast([]int{to - from, blocks, 1}, nil))
	}
	if len(parts) == 1 {
		return parts[0]
	}
	return parts[0].Concatenate(0, parts[1:]...)
}

// qDrop (Wei et al. 2022, arXiv 2203.05740): in training, half of the numbers, drawn anew in each
// step, are not quantized.
func qDrop(in input) sdk.Quantized {
	q := in.symmetric(in.x.Abs().MaxRow().Scale(1/in.top()), in.top())
	if in.Training {
		kept := in.uniform().Lt(in.b.Const(0.5))
		q = sdk.Quantized{Value: kept.Select(in.poison(in.x, in.x.IsFinite()), q.Value),
			Surrogate: q.Surrogate}
	}
	return q
}

// diffQ (Défossez et al. 2021, arXiv 2104.09987), with bits that are given and not learned: in
// training, noise as large as the error of rounding.
func diffQ(in input) sdk.Quantized {
	q := in.symmetric(in.x.Abs().MaxRow().Scale(1/in.top()), in.top())
	if in.Training {
		q = sdk.Quantized{Value: in.x.Add(in.uniform().Shift(-0.5).Mul(q.Scale)), Surrogate: q.Surrogate}
	}
	return q
}

// luq (logarithmic unbiased quantization, Chmiel et al. 2021, arXiv 2112.10769), made for
// gradients: seven powers of two below the largest magnitude of the row, which is one of them. In
// training a number goes to one of its two neighbours, or below the least to that or to zero, by
// chances that keep its mean.
func luq(in input) sdk.Quantized {
	const powers = 7
	magnitude := in.x.Abs()
	most := magnitude.MaxRow()
	finite := most.IsFinite()
	least := in.poison(most.Scale(math.Pow(2, 1-powers)).Max(in.b.Const(tiny)), finite)
	ratio := magnitude.Div(least)
	lower := in.b.Const(1).Ldexp(ratio.Max(in.b.Const(1)).Logb().Clip(0, powers-1))
	below := ratio.Lt(in.b.Const(1))
	lower, gap := below.Select(in.b.Const(0), lower), below.Select(in.b.Const(1), lower)
	chance := in.b.Const(0.5)
	if in.Training {
		chance = in.uniform()
	}
	up := ratio.Sub(lower).Gt(gap.Mul(chance)).Select(gap, in.b.Const(0))
	return sdk.Quantized{Value: lower.Add(up).Mul(in.x.Sign()).Mul(least)}
}

// observer (Jacob et al. 2018, arXiv 1712.05877; Krishnamoorthi 2018, arXiv 1806.08342): affine,
// where the least and the largest number are moving averages of those of the tensor.
func observer(in input) sdk.Quantized {
	const decay = 0.99
	least, most := in.State["least"], in.State["most"]
	levels := 2*in.top() + 1
	finite := in.x.IsFinite()
	scale := most.Sub(least).Scale(1 / levels).Max(in.b.Const(tiny))
	zero := least.Neg().Div(scale).Round()
	codes := in.x.Div(scale).Round().Add(zero).Clip(0, levels).Sub(zero)
	inside := finite.And(in.x.Ge(least)).And(in.x.Le(most))
	now := observerStart(in)
	mean := func(before, now program.Value) program.Value {
		return before.Scale(decay).Add(now.Scale(1 - decay))
	}
	return sdk.Quantized{
		Value:     in.poison(codes.Mul(scale), finite),
		Surrogate: inside.Select(in.x, in.b.Const(0)),
		Codes:     finite.Select(codes, in.b.Const(0)),
		Scale:     scale,
		Mask:      inside,
		Next:      sdk.State{"least": mean(least, now["least"]), "most": mean(most, now["most"])},
	}
}

func observerStart(in input) sdk.State {
	return sdk.State{"least": in.x.MinAll().Min(in.b.Const(0)), "most": in.x.MaxAll().
		Max(in.b.Const(0))}
}

// qEMA (the EMA quantizer of TetraJet, Chen et al. 2025, arXiv 2502.20853), on integers: a weight
// goes to that of its two neighbours to which its moving average is nearer, so that one in the
// middle between them does not go back and forth.
func qEMA(in input) sdk.Quantized {
	const decay = 0.998
	q := in.symmetric(in.x.Abs().MaxRow().Scale(1/in.top()), in.top())
	average, weight := in.State["average"]
	if !weight {
		return q
	}
	// the largest weight is on a level, and not just below
	lower := in.x.Abs().Div(q.Scale).Shift(1e-6).Floor()
	up := average.Mul(in.x.Sign()).Div(q.Scale).Sub(lower).Ge(in.b.Const(0.5)).Convert(program.Float)
	codes := lower.Add(up).Clip(-in.top(), in.top()).Mul(in.x.Sign())
	q.Value, q.Codes = codes.Mul(q.Scale), q.Scale.IsFinite().Select(codes, in.b.Const(0))
	q.Next = sdk.State{"average": average.Scale(decay).Add(in.x.Scale(1 - decay))}
	return q
}

func qEMAStart(in input) sdk.State {
	if in.Role != sdk.RoleWeight {
		return nil
	}
	return sdk.State{"average": in.x}
}

// freezing (iterative weight freezing, Nagel et al. 2022, arXiv 2203.11086): a weight whose code
// changes direction too often, in a moving average of such steps, keeps for ever the code that is
// nearest to the moving average of its codes.
func freezing(in input) sdk.Quantized {
	const momentum, most = 0.01, 0.03
	q := in.symmetric(in.x.Abs().MaxRow().Scale(1/in.top()), in.top())
	if in.Role != sdk.RoleWeight {
		return q
	}
	s, zero := in.State, in.b.Const(0)
	frozen := s["frozen"].Gt(zero)
	codes := frozen.Select(s["average"], q.Codes)
	direction := codes.Sub(s["code"]).Sign()
	turned := direction.Mul(s["direction"]).Lt(zero).Convert(program.Float)
	turns := s["turns"].Scale(1 - momentum).Add(turned.Scale(momentum))
	now := turns.Gt(in.b.Const(most))
	average := s["average"].Scale(1 - momentum).Add(codes.Scale(momentum))
	q.Next = sdk.State{
		"code":      codes,
		"direction": direction.Eq(zero).Select(s["direction"], direction),
		"turns":     turns,
		"frozen":    frozen.Or(now).Convert(program.Float),
		"average":   frozen.Select(s["average"], now.Select(s["average"].Round(), average)),
	}
	finite := q.Scale.IsFinite()
	q.Mask = q.Mask.And(frozen.Not())
	q.Value, q.Codes, q.Surrogate = codes.Mul(q.Scale), finite.Select(codes, zero),
		q.Mask.Select(in.x, zero)
	return q
}

func freezingStart(in input) sdk.State {
	if in.Role != sdk.RoleWeight {
		return nil
	}
	codes, zero := in.symmetric(in.x.Abs().MaxRow().Scale(1/in.top()), in.top()).Codes,
		in.b.Zeros(in.Shape...)
	return sdk.State{"code": codes, "direction": zero, "turns": zero, "frozen": zero, "average": codes}
}

// uniform is noise in (0, 1).
func (in input) uniform() program.Value {
	const bits = 24
	return in.b.RandomBits(in.Noise, in.Shape...).Shr(in.b.ConstUint(32 - bits)).
		Convert(program.Float).Shift(0.5).Scale(1.0 / (1 << bits))
}

// tiny keeps divisors away from zero.
const tiny = 0x1p-126

// top is the largest code of a symmetric grid.
func (in input) top() float64 { return float64(int(1)<<(in.Int("bits")-1) - 1) }

// groups cuts rows into groups that share a scale: rows that groups do not divide stay whole.
func (in input) groups() microscaling.Blocks {
	size := in.Int("group")
	if in.RowLen()%size != 0 {
		size = in.RowLen()
	}
	return microscaling.NewBlocks(in.Shape, size)
}

// ternary is the sign of what is beyond a threshold, else 0.
func (in input) ternary(threshold program.Value) program.Value {
	return in.x.Abs().Gt(threshold).Select(in.x.Sign(), in.b.Const(0))
}

// deviation is the root mean square of the tensor.
func (in input) deviation() program.Value {
	return in.x.Square().SumAll().Scale(1 / float64(in.x.Type().Size())).Sqrt()
}

// poison is v where finite, else NaN, which reaches everything that is multiplied by it.
func (in input) poison(v, finite program.Value) program.Value {
	return finite.Select(v, in.b.Const(math.NaN()))
}

// grid is codes·scale, with the gradient straight through.
func (in input) grid(codes, scale program.Value) sdk.Quantized {
	finite := scale.IsFinite()
	scale = in.poison(scale, finite)
	return sdk.Quantized{Value: codes.Mul(scale), Codes: finite.Select(codes, in.b.Const(0)),
		Scale: scale}
}

// symmetric rounds to multiples of the scale from −top to top; what is clipped gets no gradient.
func (in input) symmetric(scale program.Value, top float64) sdk.Quantized {
	finite := scale.IsFinite()
	scale = in.poison(scale.Max(in.b.Const(tiny)), finite)
	ratio := in.x.Div(scale)
	codes := ratio.Clip(-top, top).Round()
	inside := finite.And(ratio.Abs().Le(in.b.Const(top + 0.5)))
	return sdk.Quantized{
		Value:     codes.Mul(scale),
		Surrogate: inside.Select(in.x, in.b.Const(0)),
		Codes:     finite.Select(codes, in.b.Const(0)),
		Scale:     scale,
		Mask:      inside,
	}
}

// quantizer implements [sdk.Quantizer], [sdk.Trainable], [sdk.Stateful] and [sdk.Differentiator].
type quantizer struct{}

// Describe names the plugin and declares what a run may set.
func (quantizer) Describe() sdk.Description {
	var names []string
	var claims []sdk.Claim
	for _, m := range methods {
		names = append(names, m.name)
		for _, c := range m.claims {
			claims = append(claims, sdk.Claim{Name: c, When: map[string]any{"method": m.name}})
		}
	}
	return sdk.Description{
		Name:    "quantizers",
		Version: "0.1.0",
		Doc:     "Published quantizers in a few lines each.",
		Parameters: []sdk.Parameter{
			sdk.Choice("method", "statsq", names, "which of them"),
			sdk.Int("bits", 4, 2, 8, "bits of a code, where the method does not fix them"),
			sdk.Int("group", 64, 1, 4096, "affine, hqq: numbers that share a scale"),
		},
		Claims: claims,
	}
}

// chosen is the method of the settings.
func chosen(site sdk.Site) method {
	for _, m := range methods {
		if m.name == site.Text("method") {
			return m
		}
	}
	panic("the setting method has been checked")
}

// Quantize writes the method's Q(x).
func (quantizer) Quantize(
	b *program.Builder, x program.Value, site sdk.Site,
) (sdk.Quantized, error) {
	m, in := chosen(site), input{site, b, x}
	q := m.quantize(in)
	if m.backward != nil && site.Role == sdk.RoleWeight {
		q.Surrogate = program.Value{}
	}
	return q, nil
}

// Backward writes the method's own backward pass, if it has one.
func (quantizer) Backward(
	b *program.Builder, x, dy program.Value, site sdk.Site,
) (sdk.Gradients, error) {
	if m := chosen(site); m.backward != nil {
		return m.backward(input{site, b, x}, dy), nil
	}
	return sdk.Gradients{}, nil
}

// InitTrained starts the method's trained parameters.
func (quantizer) InitTrained(
	b *program.Builder, x program.Value, site sdk.Site,
) (sdk.State, error) {
	if m := chosen(site); m.trained != nil {
		return m.trained(input{site, b, x}), nil
	}
	return nil, nil
}

// InitState starts the method's state.
func (quantizer) InitState(b *program.Builder, x program.Value, site sdk.Site) (sdk.State, error) {
	if m := chosen(site); m.state != nil {
		return m.state(input{site, b, x}), nil
	}
	return nil, nil
}

func main() { sdk.ServeQuantizer(quantizer{}) }
