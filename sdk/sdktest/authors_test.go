package sdktest_test

import (
	"math"
	"testing"

	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/sdktest"
)

// This file has correct plugins with features of published methods that are mistakes in others.

// dampened is [observing] with state that only the gradient uses, as methods against oscillations
// do: an average of the rounding errors. With carries, the average is added to x before rounding.
type dampened struct{ carries bool }

func (dampened) Describe() sdk.Description { return sdk.Description{Name: "dampened", Doc: "Q."} }

func (dampened) InitState(b *program.Builder, x program.Value, site sdk.Site) (sdk.State, error) {
	if site.Role != sdk.RoleWeight {
		return nil, nil
	}
	return sdk.State{"error": b.Zeros(site.Shape...)}, nil
}

func (d dampened) Quantize(
	b *program.Builder, x program.Value, site sdk.Site,
) (sdk.Quantized, error) {
	average, ok := site.State["error"]
	if !ok || !site.Training {
		average = b.Const(0)
	}
	finite := x.Abs().MaxRow().IsFinite()
	clean := finite.Select(x, b.Const(0))
	given := clean
	if d.carries {
		given = given.Add(average.Scale(0.5))
	}
	scale := finite.Select(clean.Abs().MaxRow().Scale(1./7).Max(b.Const(0x1p-126)),
		b.Const(math.NaN()))
	codes := given.Div(scale).Round().Clip(-7, 7)
	out := sdk.Quantized{Value: codes.Mul(scale), Codes: finite.Select(codes, b.Const(0)),
		Scale: scale, Mask: finite.Broadcast(x.Shape(), []int{0, 1}), Surrogate: clean}
	if ok {
		off := finite.Select(clean.Sub(codes.Mul(scale)), b.Const(0))
		out.Next = sdk.State{"error": site.State["error"].Scale(0.9).Add(off.Scale(0.1))}
		if !d.carries {
			factor := average.Abs().Div(clean.Abs().MaxRow().Shift(1e-12)).Neg().Shift(1)
			out.Surrogate = clean.Mul(factor.StopGradient())
		}
	}
	return out, nil
}

// calibrated is [observing] whose scale is computed once, from the first tensor.
func calibrated() observing {
	return observing{next: func(old, _ program.Value) program.Value { return old }}
}

// aligned renews a basis from the gradient of the update, which the refresh is given or, with
// carried, finds in the state.
type aligned struct {
	whitened
	carried bool
	ignores bool // the state: the refresh reads the gradient that it is given
}

func (a aligned) Init(b *program.Builder, _ program.Value, t sdk.Tensor) (sdk.State, error) {
	state := sdk.State{"root": identity(b, t.Shape[0])}
	if a.carried {
		state["g"] = b.Zeros(t.Shape...)
	}
	return state, nil
}

func (a aligned) Observe(
	_ *program.Builder, in sdk.UpdateInput, _ sdk.Tensor,
) (sdk.State, error) {
	if a.carried {
		return sdk.State{"g": in.Gradient}, nil
	}
	return nil, nil
}

func (a aligned) Refresh(
	b *program.Builder, in sdk.RefreshInput, _ bool, t sdk.Tensor,
) (sdk.State, error) {
	g := in.Gradient
	if a.carried && !a.ignores {
		g = in.State["g"]
	}
	n := t.Shape[0]
	l := g.MatMul(g.Transpose(1, 0)).Add(identity(b, n).Scale(1e-6))
	values, vectors := l.EighValues(), l.EighVectors()
	scaled := vectors.Mul(values.Max(b.Const(1e-6)).Sqrt().Sqrt().Reshape(1, n).Pow(b.Const(-1)))
	return sdk.State{"root": scaled.MatMul(vectors.Transpose(1, 0))}, nil
}

// sparse is [good] without what is pruned: the two smaller of every four entries, which stay 0
// beside NaN.
type sparse struct {
	rows
	// forgives keeps NaN out of the scale.
	forgives bool
}

func (q sparse) Quantize(
	b *program.Builder, x program.Value, site sdk.Site,
) (sdk.Quantized, error) {
	n, d := site.Shape[0], site.Shape[1]
	if d%4 != 0 {
		return sdk.Quantized{}, sdk.Refuse("rows of %d have no groups of four", d)
	}
	if q.forgives {
		q.finite = func(x program.Value) program.Value { return x.Eq(x).Or(x.IsFinite()) }
		q.scale = func(_, x program.Value) program.Value {
			return x.IsFinite().Select(x, b.Const(0)).Abs().MaxRow().Div(b.Const(7))
		}
	}
	out, err := q.rows.Quantize(b, x, site)
	keep := x.Abs().Reshape(n*d/4, 4).TopK(b.ConstInt(2)).Reshape(n, d).Or(x.IsFinite().Not())
	out.Value = keep.Select(out.Value, b.Const(0))
	out.Codes = keep.Select(out.Codes, b.ConstInt(0))
	out.Mask = out.Mask.And(keep)
	out.Surrogate = out.Mask.Select(x, b.Const(0))
	return out, err
}

// modelBased is MoMo-Adam (Schaipp et al. 2023, arXiv 2305.07583, Algorithm 3, with f* = 0 and
// without decay): Adam whose rate is at most that of a Polyak step on a model of the loss,
//
//	h = f̄ + ⟨m, x⟩ − γ,  τ = min(α/(1 − β₁ᵗ), max(h, 0)/‖m‖²_D⁻¹),  x ← x − τ·D⁻¹·m,
//
// where f̄, γ and m are averages of the loss, of ⟨g, x⟩ and of g, and D is Adam's denominator.
// The inner products are those of all tensors.
type modelBased struct{ ignores bool } // the loss before this step

func (modelBased) Describe() sdk.Description {
	return sdk.Description{Name: "momo-adam", Doc: "MoMo-Adam."}
}

func (modelBased) Init(b *program.Builder, _ program.Value, t sdk.Tensor) (sdk.State, error) {
	zeros, zero := b.Zeros(t.Shape...), b.Const(0)
	return sdk.State{"m": zeros, "v": zeros, "f": zero, "gamma": zero}, nil
}

func (o modelBased) next(in sdk.UpdateInput) (next sdk.State, d program.Value) {
	mean := func(name string, beta float64, x program.Value) program.Value {
		return in.State[name].Scale(beta).Add(x.Scale(1 - beta))
	}
	next = sdk.State{"m": mean("m", 0.9, in.Gradient), "v": mean("v", 0.999, in.Gradient.Square()),
		"f": mean("f", 0.9, in.Loss), "gamma": mean("gamma", 0.9, in.Gradient.Mul(in.X).SumAll())}
	if o.ignores {
		next["f"] = in.Loss
	}
	return next, next["v"].Div(sdk.BiasCorrection(in.Step, 0.999)).Sqrt().Shift(1e-8)
}

func (o modelBased) Collect(
	_ *program.Builder, in sdk.UpdateInput, _ sdk.Tensor,
) (sdk.State, error) {
	next, d := o.next(in)
	return sdk.State{"inner": next["m"].Mul(in.X).SumAll().Sub(next["gamma"]),
		"norm2": next["m"].Square().Div(d).SumAll()}, nil
}

func (o modelBased) Update(
	b *program.Builder, in sdk.UpdateInput, _ sdk.Tensor,
) (program.Value, sdk.State, error) {
	next, d := o.next(in)
	h, norm2 := next["f"].Add(in.Global["inner"]).Max(b.Const(0)), in.Global["norm2"]
	polyak := h.Div(norm2.Max(b.Const(1e-30)))
	τ := polyak.Min(in.Rate.Div(sdk.BiasCorrection(in.Step, 0.9)))
	// The host multiplies by the rate, which may be 0.
	factor := in.Rate.Gt(b.Const(0)).Select(τ.Div(in.Rate.Max(b.Const(1e-30))), b.Const(0))
	return next["m"].Div(d).Mul(factor), next, nil
}

// ownRate is modelBased with τ as its own rate.
type ownRate struct{ modelBased }

func (o ownRate) Rate(b *program.Builder, in sdk.UpdateInput, _ sdk.Tensor) (program.Value, error) {
	next, _ := o.next(in)
	h := next["f"].Add(in.Global["inner"]).Max(b.Const(0))
	polyak := h.Div(in.Global["norm2"].Max(b.Const(1e-30)))
	return polyak.Min(in.Rate.Div(sdk.BiasCorrection(in.Step, 0.9))), nil
}

func (o ownRate) Update(
	_ *program.Builder, in sdk.UpdateInput, _ sdk.Tensor,
) (program.Value, sdk.State, error) {
	next, d := o.next(in)
	return next["m"].Div(d), next, nil
}

// TestAuthors checks that the plugins pass, those with claims only with their claims.
func TestAuthors(t *testing.T) {
	for _, c := range []struct {
		name   string
		q      sdk.Quantizer
		o      sdk.Optimizer
		claims []sdk.Claim
		check  string // which fails without the claims
	}{
		{name: "dampened", q: dampened{}},
		{name: "carries", q: dampened{carries: true},
			claims: []sdk.Claim{{Name: sdk.ClaimTrainingState}}, check: "state"},
		{name: "calibrated once", q: calibrated()},
		{name: "two of four", q: sparse{rows: good()},
			claims: []sdk.Claim{{Name: sdk.ClaimPrunes}, {Name: sdk.ClaimAnyRounding}}, check: "non-finite"},
		{name: "passes clipped entries", q: clipping{threshold: 2},
			claims: []sdk.Claim{{Name: sdk.ClaimAnyMask}}, check: "mask"},
		{name: "a refresh with the gradient", o: aligned{}},
		{name: "a refresh with a gradient in the state", o: aligned{carried: true}},
		{name: "momo-adam", o: modelBased{}},
		{name: "momo-adam, a rate of its own", o: ownRate{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var report sdktest.Report
			if claims := sdktest.Claim(c.claims...); c.q != nil {
				report = sdktest.CheckQuantizer(sdktest.NewQuantizer(c.q), claims)
			} else {
				report = sdktest.CheckOptimizer(sdktest.NewOptimizer(c.o), claims)
			}
			fails(t, report, nil)
			if c.check != "" {
				fails(t, some(c.q, c.o, nil, c.check), []string{c.check})
			}
		})
	}
}
