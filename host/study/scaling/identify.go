package scaling

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"gonum.org/v1/gonum/mat"
	"gonum.org/v1/gonum/stat/distuv"
)

// identification describes how well the points determine those free parameters that are not at a
// bound.
type identification struct {
	indices []int
	// priorDominated holds the indices of parameters that are determined by the priors more than by
	// the points, or not at all. They have no interval, which would only show the width of the prior.
	priorDominated map[int]bool
}

// identify sets the standard errors and intervals of a fit's parameters by linearizing the law.
func (f *fitting) identify(fit *Fit, x []float64) identification {
	k := identification{priorDominated: map[int]bool{}}
	var columns []int
	for column, j := range f.model.free {
		if fit.at(j).Status == Fitted {
			k.indices, columns = append(k.indices, j), append(columns, column)
		}
	}
	if len(k.indices) == 0 {
		return k
	}
	p := f.model.problem(f.options.Huber)
	r, jac := make([]float64, p.residuals), mat.NewDense(p.residuals, len(x), nil)
	p.eval(x, r, jac)
	chosen := mat.NewDense(p.residuals, len(k.indices), nil)
	for k, column := range columns {
		chosen.SetCol(k, mat.Col(nil, column, jac))
	}
	data := chosen.Slice(0, p.robust, 0, len(k.indices)).(*mat.Dense)
	// The variance of ρ'(r)/2 (score) and the mean of ρ''(r)/2 (slope) over the residuals r determine
	// the standard errors of robust estimates (Huber 1981, "Robust Statistics").
	score, slope := 0.0, 0.0
	for _, v := range r[:p.robust] {
		v = math.Abs(v)
		if v <= p.threshold {
			slope++
		}
		score += math.Pow(math.Min(v, p.threshold), 2)
	}
	score /= float64(max(1, p.robust-len(k.indices)))
	slope = math.Max(slope, 1) / float64(p.robust)
	with := standardErrors(data, chosen.Slice(p.robust, p.residuals, 0, len(k.indices)), score, slope)
	without := standardErrors(data, nil, score, slope)
	degrees := f.degreesOfFreedom()
	for i, j := range k.indices {
		e := fit.at(j)
		k.priorDominated[j] = with[i] < without[i]/2 || without[i] > singularError
		if without[i] > undeterminedWidth/4 {
			e.Status = Undetermined
		}
		if degrees <= 0 || k.priorDominated[j] {
			continue
		}
		// This is the t interval around the logarithm. An undetermined parameter gets none.
		t := distuv.StudentsT{Sigma: 1, Nu: float64(degrees)}.Quantile(0.5 + level/2)
		low, high := e.Value*math.Exp(-t*with[i]), e.Value*math.Exp(t*with[i])
		if with[i] > 1e-12 && !math.IsInf(high, 0) {
			e.StdErr, e.Low, e.High = with[i], low, high
		}
	}
	return k
}

func (f *fitting) degreesOfFreedom() int { return len(f.points) - len(f.model.free) }

// undeterminedWidth is the width of the interval of a logarithm (four standard errors) above which
// a parameter counts as undetermined: a factor of 7.
const undeterminedWidth = 2.0

// singularError is the standard error of a logarithm above which a parameter is not determined at
// all: a factor of e¹⁰⁰. Larger [standardErrors] are rounding errors of a singular matrix.
const singularError = 100.0

// standardErrors returns the square roots of the diagonal of H⁻¹·M·H⁻¹ with H = slope·JᵀJ + PᵀP,
// where P is the priors, and M = score·JᵀJ. They are very large for parameters in the null space of
// H, and only for those.
func standardErrors(j *mat.Dense, prior mat.Matrix, score, slope float64) []float64 {
	_, n := j.Dims()
	var square, h mat.Dense
	square.Mul(j.T(), j)
	h.Scale(slope, &square)
	if prior != nil {
		var more mat.Dense
		more.Mul(prior.T(), prior)
		h.Add(&h, &more)
	}
	scale, scaled := make([]float64, n), mat.NewSymDense(n, nil) // scales the diagonal to 1
	for a := range n {
		scale[a] = 1 / math.Sqrt(math.Max(h.At(a, a), 1e-60))
		for b := range a + 1 {
			scaled.SetSym(a, b, h.At(a, b)*scale[a]*scale[b])
		}
	}
	out := slices.Repeat([]float64{math.Inf(1)}, n)
	var eigen mat.EigenSym
	if !eigen.Factorize(scaled, true) {
		return out
	}
	var v, inverse, left, cov mat.Dense
	eigen.VectorsTo(&v)
	values := eigen.Values(nil)
	left.Apply(func(a, k int, x float64) float64 {
		return x * scale[a] / math.Sqrt(math.Max(values[k], 1e-16*values[n-1]))
	}, &v)
	inverse.Mul(&left, left.T())
	left.Reset()
	left.Mul(&inverse, &square)
	cov.Mul(&left, &inverse)
	for k := range n {
		if x := score * cov.At(k, k); x >= 0 {
			out[k] = math.Sqrt(x)
		}
	}
	return out
}

// warnDesign warns of experiment designs in which terms of the law cannot be separated.
func (f *fitting) warnDesign() (warnings []string) {
	var sizes []float64
	least, most := math.Inf(1), 0.0
	for _, p := range f.points {
		if !slices.ContainsFunc(sizes, func(n float64) bool { return math.Abs(n/p.N-1) < 0.01 }) {
			sizes = append(sizes, p.N)
		}
		least, most = math.Min(least, p.D/p.N), math.Max(most, p.D/p.N)
	}
	warn := func(format string, args ...any) {
		warnings = append(warnings, fmt.Sprintf(format, args...))
	}
	free := func(j int) bool { return !f.model.isFixed(j) }
	if len(sizes) < 3 && free(atA) && free(atAlpha) && free(atE) {
		warn("the points have %d different sizes: A, alpha and E need three, "+
			"and the efficiencies depend on them; train more sizes, or fix parameters", len(sizes))
	}
	if most < 1.2*least && (free(atA) || free(atAlpha)) && (free(atB) || free(atBeta)) {
		span := fmt.Sprintf("%.3g", least)
		if most > 1.005*least {
			span += fmt.Sprintf(" to %.3g", most)
		}
		warn("all points have about the same tokens per parameter (%s): only the curvature of the "+
			"losses separates A/N^α from B/D^β, and the efficiencies depend on that; "+
			"train with other token counts, or fix alpha and beta", span)
	}
	switch n := len(f.model.free); {
	case f.degreesOfFreedom() < 0:
		warn("%d points for %d parameters: the priors decide the rest, and there are no intervals",
			len(f.points), n)
	case f.degreesOfFreedom() == 0 && n > 0:
		warn("%d points for as many parameters: the law goes through all of them, "+
			"so its errors are unknown and there are no intervals", n)
	}
	return warnings
}

// warnUndetermined returns warnings about the parameters that the points do not determine.
func (f *fitting) warnUndetermined(fit *Fit, k identification) (warnings []string) {
	var undetermined, priorDominated, bound []string
	for j := range f.model.fixed {
		e := fit.at(j)
		switch e.Status {
		case Undetermined:
			undetermined = append(undetermined, e.Name)
		case AtBound:
			bound = append(bound, fmt.Sprintf("%s = %.2g", e.Name, e.Value))
		}
		if k.priorDominated[j] {
			priorDominated = append(priorDominated, e.Name)
		}
	}
	if len(bound) > 0 {
		warnings = append(warnings, "at the bound of the allowed range, because no point determines it: "+
			strings.Join(bound, ", "))
	}
	if len(undetermined) > 0 {
		list := strings.Join(undetermined, ", ")
		warnings = append(warnings, "hardly determined by the points: "+list)
	}
	if len(priorDominated) > 0 && f.degreesOfFreedom() > 0 {
		warnings = append(warnings, "without an interval, because the prior determines it more than "+
			"the points do, or nothing does: "+strings.Join(priorDominated, ", "))
	}
	return warnings
}
