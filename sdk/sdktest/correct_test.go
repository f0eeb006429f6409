package sdktest_test

import (
	"math"
	"testing"

	"github.com/cage-qat/cage/internal/testing/testlevel"
	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/sdktest"
)

// coarse is a correct quantizer with few levels; most of its codes may be zero for any scale.
type coarse struct {
	about sdk.Description
	// scale returns the scales of x. They are not finite where an entry of x is not.
	scale func(x program.Value, site sdk.Site) program.Value
	// level rounds x/scale.
	level func(r program.Value, site sdk.Site) program.Value
}

func (q coarse) Describe() sdk.Description { return q.about }

func (q coarse) Quantize(
	b *program.Builder, x program.Value, site sdk.Site,
) (sdk.Quantized, error) {
	s := q.scale(x, site)
	finite := s.IsFinite()
	s = finite.Select(s, b.Const(math.NaN()))
	zero := s.Eq(b.Const(0))
	level := q.level(x.Div(zero.Select(b.Const(1), s)), site)
	finite = finite.Broadcast(x.Shape(), axes(s, x))
	return sdk.Quantized{
		Value:     level.Mul(s),
		Surrogate: finite.Select(x, b.Const(0)),
		Codes:     finite.Select(level, b.Const(0)).Convert(program.Int),
		Scale:     s,
		Mask:      finite,
	}, nil
}

// axes returns the axes of x that correspond to those of s.
func axes(s, x program.Value) []int {
	if len(s.Shape()) == 0 {
		return nil
	}
	return []int{0, 1}
}

func rowMax(x program.Value, _ sdk.Site) program.Value    { return x.Abs().MaxRow() }
func tensorMax(x program.Value, _ sdk.Site) program.Value { return x.Abs().ReduceMax(0, 1) }

// ternary has the levels −1, 0 and 1 times the largest entry, and a threshold for zero.
func ternary(scale func(program.Value, sdk.Site) program.Value) coarse {
	about := sdk.Description{Name: "ternary", Doc: "Three levels.", Parameters: []sdk.Parameter{
		sdk.Float("threshold", 0.5, 0.1, 0.97,
			"the smallest entry that is not zero, in parts of the largest")}}
	return coarse{about, scale, func(r program.Value, site sdk.Site) program.Value {
		b := r.Builder()
		return r.Abs().Ge(b.Const(site.Float("threshold"))).Select(r.Sign(), b.Const(0))
	}}
}

// unsigned has a parameter that removes the negative levels.
func unsigned(scale func(program.Value, sdk.Site) program.Value) coarse {
	about := sdk.Description{Name: "unsigned", Doc: "Levels from 0 to 15.",
		Parameters: []sdk.Parameter{
			sdk.Bool("unsigned", false, "no negative levels")}}
	return coarse{about, func(x program.Value, site sdk.Site) program.Value {
		return scale(x, site).Scale(1. / 15)
	}, func(r program.Value, site sdk.Site) program.Value {
		low := -15.0
		if site.Bool("unsigned") {
			low = 0
		}
		return r.Round().Clip(low, 15)
	}}
}

// stochastic rounds up with the probability of the fractional part in training, and to nearest in
// evaluation.
func stochastic(change func(*rows)) rows {
	q := good()
	q.drawn = func(r, u program.Value) program.Value { return r.Add(u).Floor() }
	change(&q)
	return q
}

// dithered always rounds with the same noise, in evaluation, too. The noise of an element depends
// on its position in the matrix.
func dithered(change func(*rows)) rows {
	q := good()
	q.round = func(r program.Value) program.Value {
		b := r.Builder()
		bits := b.RandomBits(b.Table([]float64{1, 2}, 2).Convert(program.Uint), r.Shape()...)
		return r.Add(bits.Convert(program.Float).Scale(0x1p-32)).Floor()
	}
	q.homogeneous = false
	change(&q)
	return q
}

// rotatedNoise, in training, multiplies rows by random signs that both operands of a product share,
// rotates them, rounds stochastically, and rotates back.
type rotatedNoise struct{}

func (rotatedNoise) Describe() sdk.Description {
	return sdk.Description{Name: "rotated-noise", Doc: "A re-randomized rotation."}
}

func (rotatedNoise) Quantize(
	b *program.Builder, x program.Value, site sdk.Site,
) (sdk.Quantized, error) {
	block := site.RowLen() & -site.RowLen()
	y, u, signs := x, b.Const(0.5), b.Const(1)
	if site.Training {
		signs = b.RandomBits(site.SharedNoise, 1, site.RowLen()).Shr(b.ConstUint(31)).
			Convert(program.Float).Scale(2).Shift(-1)
		u = b.RandomBits(site.Noise, site.Shape...).Shr(b.ConstUint(16)).Convert(program.Float).
			Shift(0.5).Scale(0x1p-16)
		y = x.Mul(signs).Hadamard(block)
	}
	const top = 7
	largest := y.Abs().MaxRow()
	finite := largest.IsFinite()
	scale := finite.Select(largest.Scale(1.0/top).Max(b.Const(0x1p-126)), b.Const(math.NaN()))
	codes := y.Div(scale).Add(u).Floor().Clip(-top, top)
	value := codes.Mul(scale)
	if site.Training {
		value = value.Hadamard(block).Mul(signs)
	}
	return sdk.Quantized{Value: value, Codes: finite.Select(codes, b.Const(0)), Scale: scale,
		Homogeneous: true}, nil
}

// trained is a quantizer of four bits with one trained number, which determines the largest value.
type trained struct {
	about   sdk.Description
	initial func(most program.Value) program.Value
	// largest returns the largest value of the grid.
	largest func(p program.Value) program.Value
	// inside reports whether entries that are not clipped also train the number.
	inside bool
}

func (q trained) Describe() sdk.Description { return q.about }

func (q trained) InitTrained(_ *program.Builder, x program.Value, _ sdk.Site) (sdk.State, error) {
	most := x.Abs().ReduceMax(0, 1).Scale(0.9)
	return sdk.State{"p": q.initial(most.Max(most.Builder().Const(1e-20)))}, nil
}

func (q trained) Quantize(
	b *program.Builder, x program.Value, site sdk.Site,
) (sdk.Quantized, error) {
	finite := x.IsFinite()
	largest := q.largest(site.Trained["p"])
	r := x.Div(largest.Scale(1. / 7))
	code := r.Round().Clip(-7, 7)
	inside := r.Abs().Le(b.Const(7)).And(finite)
	slope := inside.Select(b.Const(0), code.Scale(1./7))
	if q.inside {
		slope = code.Scale(1. / 7).Sub(inside.Select(r.Scale(1./7), b.Const(0)))
	}
	return sdk.Quantized{
		Value: finite.Select(code.Mul(largest).Scale(1./7), b.Const(math.NaN())),
		Surrogate: finite.Select(inside.Select(x, b.Const(0)).Add(largest.Mul(slope.StopGradient())),
			b.Const(0)),
		Codes: finite.Select(code, b.Const(0)).Convert(program.Int),
		Mask:  inside,
	}, nil
}

func same(v program.Value) program.Value { return v }

// pact learns the clipping bound from clipped entries only (Choi et al., "PACT", 2018).
var pact = trained{sdk.Description{Name: "pact", Doc: "A learned clip."}, same, same, false}

// exponent learns the logarithm of the largest value (Jain et al., "Trained Quantization
// Thresholds", 2020).
var exponent = trained{sdk.Description{Name: "exponent", Doc: "A learned exponent."},
	program.Value.Log, program.Value.Exp, true}

// counted returns rows whose codes count levels from the lowest.
func counted() rows {
	q := good()
	q.codes = func(v program.Value) program.Value { return v.Add(v.Builder().ConstInt(7)) }
	return q
}

// pruned keeps the two largest of every four entries of a row, and rounds them like [good].
type pruned struct{ rows }

func (q pruned) Quantize(
	b *program.Builder, x program.Value, site sdk.Site,
) (sdk.Quantized, error) {
	n, d := site.Shape[0], site.Shape[1]
	if d%4 != 0 {
		return sdk.Quantized{}, sdk.Refuse("rows of %d have no groups of four", d)
	}
	out, err := q.rows.Quantize(b, x, site)
	zero, groups := b.Const(0), x.Abs().Reshape(n, d/4, 4)
	place := b.Iota(groups.Type(), 2)
	larger := zero
	for i := range 4 {
		other := groups.Column(i)
		larger = larger.Add(other.Gt(groups).Or(other.Eq(groups).And(place.Gt(b.Const(float64(i))))).
			Select(b.Const(1), zero))
	}
	keep := larger.Lt(b.Const(2)).Reshape(n, d)
	poisoned := out.Value.IsFinite().Not()
	out.Value = keep.Or(poisoned).Select(out.Value, zero)
	out.Codes = keep.Select(out.Codes, b.ConstInt(0))
	out.Mask = out.Mask.And(keep)
	out.Surrogate = out.Mask.Select(x, zero)
	return out, err
}

// float8 has the exponents and mantissas of E5M2 and one power of two for each row, so its levels
// hardly depend on the scale.
type float8 struct{}

func (float8) Describe() sdk.Description {
	return sdk.Description{Name: "float8", Doc: "E5M2 with a power of two for each row."}
}

func (float8) Quantize(b *program.Builder, x program.Value, _ sdk.Site) (sdk.Quantized, error) {
	most := x.Abs().MaxRow()
	finite := most.IsFinite()
	exponent := most.Max(b.Const(0x1p-100)).Logb().Shift(-15)
	scale := finite.Select(b.Const(1).Ldexp(exponent), b.Const(math.NaN()))
	r := x.Div(scale)
	// Three significant bits, down to the smallest normal exponent.
	unit := b.Const(1).Ldexp(r.Abs().Max(b.Const(0x1p-14)).Logb().Shift(-2))
	level := r.Div(unit).Round().Mul(unit)
	return sdk.Quantized{Value: level.Mul(scale), Surrogate: finite.Select(x, b.Const(0)),
		Scale: scale, Mask: finite.Broadcast(x.Shape(), nil)}, nil
}

// signs has two levels for each row, none of them zero.
type signs struct{}

func (signs) Describe() sdk.Description {
	return sdk.Description{Name: "signs", Doc: "One bit (Rastegari et al. 2016)."}
}

func (signs) Quantize(b *program.Builder, x program.Value, _ sdk.Site) (sdk.Quantized, error) {
	mean := x.Abs().MeanRow()
	finite := mean.IsFinite()
	scale := finite.Select(mean, b.Const(math.NaN()))
	sign := x.Ge(b.Const(0)).Select(b.Const(1), b.Const(-1))
	return sdk.Quantized{
		Value: sign.Mul(scale), Surrogate: finite.Select(x, b.Const(0)),
		Codes: finite.Select(sign, b.Const(0)).Convert(program.Int), Scale: scale,
		Mask: finite.Broadcast(x.Shape(), nil),
	}, nil
}

// distance makes steps as long as 1 plus the largest distance from the start so far, as optimizers
// without a learning rate do (Defazio and Mishchenko, "Learning-Rate-Free Learning by
// D-Adaptation", 2023). One state tensor is the start; the other changes only because x moves.
type distance struct{ momentum }

func (distance) Init(b *program.Builder, x program.Value, t sdk.Tensor) (sdk.State, error) {
	return sdk.State{"start": x, "d": b.Const(0)}, nil
}

func (distance) Update(
	_ *program.Builder, in sdk.UpdateInput, _ sdk.Tensor,
) (program.Value, sdk.State, error) {
	g := in.Gradient
	d := in.State["d"].Max(in.State["start"].Sub(in.X).Square().SumAll().Sqrt())
	return g.Div(g.Square().SumAll().Sqrt().Shift(1e-12)).Mul(d.Shift(1)),
		sdk.State{"start": in.State["start"], "d": d}, nil
}

// TestCorrectOptimizers checks that a state tensor may hold the start, or change only because x
// moves.
func TestCorrectOptimizers(t *testing.T) {
	fails(t, sdktest.CheckOptimizer(sdktest.NewOptimizer(distance{})), nil)
}

// TestCorrect checks that correct plugins pass, however unusual they are. Short mode tries every
// sixth.
func TestCorrect(t *testing.T) {
	every := testlevel.Sample(6, 1, 1)
	free := []sdk.Claim{{Name: sdk.ClaimAnyRounding}}
	for i, c := range []struct {
		name   string
		q      sdk.Quantizer
		claims []sdk.Claim
	}{
		{"a high threshold for each row", ternary(rowMax), free},
		{"a high threshold for the tensor", ternary(tensorMax),
			[]sdk.Claim{{Name: sdk.ClaimAnyRounding}, {Name: sdk.ClaimScaleScope, Value: sdk.ScopeTensor}}},
		{"unsigned rows", unsigned(rowMax), nil},
		{"unsigned tensor", unsigned(tensorMax),
			[]sdk.Claim{{Name: sdk.ClaimScaleScope, Value: sdk.ScopeTensor}}},
		{"codes that count levels", counted(), []sdk.Claim{{Name: sdk.ClaimAnyZeroCode}}},
		{"two of four", pruned{good()},
			[]sdk.Claim{{Name: sdk.ClaimPrunes}, {Name: sdk.ClaimAnyRounding}}},
		{"a float grid with a power of two", float8{}, nil},
		{"signs", signs{}, []sdk.Claim{{Name: sdk.ClaimAnyZeroCode}}},
		{"noise that depends on the place", dithered(func(*rows) {}), free},
		{"noise of each step", stochastic(func(*rows) {}),
			[]sdk.Claim{{Name: sdk.ClaimAnyRounding}, {Name: sdk.ClaimUnbiased},
				{Name: sdk.ClaimIdempotent}}},
		{"noise of each step, and a rotation", rotatedNoise{},
			[]sdk.Claim{{Name: sdk.ClaimAnyRounding}, {Name: sdk.ClaimUnbiased}}},
		{"a moving average", observing{}, nil},
		{"a learned clip", pact, nil},
		{"a learned exponent", exponent, nil},
	} {
		if (i+2)%every > 0 {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			if r := sdktest.CheckQuantizer(sdktest.NewQuantizer(c.q),
				sdktest.Claim(c.claims...)); r.Failed() {
				t.Error(r)
			}
		})
	}
}
