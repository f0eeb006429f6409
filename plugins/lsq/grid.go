package main

import (
	"math"

	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/microscaling"
	"github.com/cage-qat/cage/sdk/program"
)

// grid is the algorithm under the settings of a site. In units of the step:
//
//	paper     levels −Q_N … Q_P, integers; dx passes where −Q_N < r < Q_P
//	official  levels −Q_N + ½ … Q_P + ½; dx passes where −Q_N ≤ r − ½ ≤ Q_P
//
// The official form is LSQQuantizer of QuEST's published code (IST-DASLab/QuEST)
// with its default levels, "raise_zero", and the gradient of torch.clamp. There, the N of
// an activation also counts the tokens. That code adds 1e-9·s to its output; here this is
// left out, because x̂ would not be on the grid.
type grid struct {
	site sdk.Site
	// qn and qp are Q_N and Q_P.
	qn, qp float64
	// shift is the distance of the levels from the integers, 0 or ½. codes is the factor
	// from levels to codes: 1, or 2 where half-integers are stored as odd integers.
	shift, codes float64
	// gradientScale is gs = 1/√(N·Q_P).
	gradientScale float64
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
	g.gradientScale = 1 / math.Sqrt(float64(g.elementsPerStep())*g.qp)
	return g, nil
}

func (g grid) official() bool { return g.site.Text("form") == formOfficial }
func (g grid) plus() bool     { return g.site.Text("variant") == variantPlus }
func (g grid) rows() bool     { return g.site.Text("granularity") == perRow }
func (g grid) weight() bool   { return g.site.Role != sdk.RoleActivation }

// rounded is the step, rounded to the type of scales.
func (g grid) rounded(step program.Value) program.Value {
	if g.official() {
		return microscaling.ScaleTypeOf(g.site).RoundStep(step)
	}
	return microscaling.ScaleTypeOf(g.site).Round(step)
}

// elementsPerStep is N, how many numbers share a step. For an activation in the paper form, only the
// numbers of one token count.
func (g grid) elementsPerStep() int {
	if g.rows() || !g.weight() && !g.official() {
		return g.site.RowLen()
	}
	return g.size()
}

// size is the number of elements of the tensor.
func (g grid) size() int { return int(program.FloatType(g.site.Shape...).Size()) }

// round gives for each r its level, its deviation, and whether it lies inside the bounds.
// The deviation is the factor of dx̂ in ds: level − r inside, and the level itself outside.
// The bounds are integers, so r may be clipped before or after it is rounded. Where r is
// NaN, inside is false, and level and deviation are not defined.
func (g grid) round(r program.Value) (level, deviation, inside program.Value) {
	b := r.Builder()
	if g.official() {
		shifted := r.Shift(-g.shift)
		clipped := shifted.Clip(-g.qn, g.qp)
		level, inside = clipped.Round().Shift(g.shift), shifted.Eq(clipped)
	} else {
		level = r.Clip(-g.qn, g.qp).Round()
		inside = r.Gt(b.Const(-g.qn)).And(r.Lt(b.Const(g.qp)))
	}
	return level, inside.Select(level.Sub(r), level), inside
}

// finite is false for groups that hold NaN or ±Inf: their sum is not finite. A sum costs one
// pass and writes no result of the tensor's size. In binary32 it also becomes infinite when
// elements come near 1e38.
func (g grid) finite(x program.Value) program.Value {
	if g.rows() {
		return x.MeanRow().IsFinite()
	}
	return x.SumAll().IsFinite()
}
