package scaling

import (
	"context"
	"math"
	"slices"

	"gonum.org/v1/gonum/mat"

	"github.com/cage-qat/cage/internal/lists"
)

// leastSquares is the problem of minimizing, within bounds of x,
//
//	Σ_i ρ(r_i(x)) over the first robust residuals + Σ_i r_i(x)² over the rest,
//
// where ρ is the Huber loss: r² up to the threshold δ and 2δ|r| − δ² beyond. δ = +Inf means least
// squares.
type leastSquares struct {
	residuals, robust int
	threshold         float64
	low, high         []float64
	// eval computes the residuals r at x and, unless jac is nil, their Jacobian.
	eval func(x, r []float64, jac *mat.Dense)
}

func (p *leastSquares) cost(r []float64) float64 {
	sum := 0.0
	for i, v := range r {
		v = math.Abs(v)
		if i < p.robust && v > p.threshold {
			sum += p.threshold * (2*v - p.threshold)
			continue
		}
		sum += v * v
	}
	if math.IsNaN(sum) {
		return math.Inf(1)
	}
	return sum
}

type minimum struct {
	x    []float64
	cost float64
}

const (
	firstDamping = 1e-3
	maxDamping   = 1e12
	negligible   = 1e-13 // relative decrease of the cost that counts as none
	patience     = 5     // number of consecutive negligible steps that ends the search
	perfect      = 1e-28 // cost of residuals that are only rounding errors
)

// minimize uses the Levenberg-Marquardt method: Gauss-Newton steps that are damped in the scale of
// each parameter (Marquardt 1963), with the damping controlled by the ratio of the actual to the
// predicted decrease (Nielsen 1999, "Damping Parameter in Marquardt's Method"). The Huber loss is
// handled by iterative reweighting (Holland and Welsch 1977), and bounds by projection: a parameter
// at a bound is left out of a step that would move it outwards.
func (p *leastSquares) minimize(ctx context.Context, start []float64, steps int) minimum {
	n := len(start)
	s := &descent{
		p: p, x: make([]float64, n), r: make([]float64, p.residuals), trial: make([]float64, n),
		trialR: make([]float64, p.residuals), jac: mat.NewDense(p.residuals, n, nil),
		gradient: make([]float64, n), hessian: mat.NewSymDense(n, nil),
	}
	for i, v := range start {
		s.x[i] = min(max(v, p.low[i]), p.high[i])
	}
	s.linearize()
	damping, growth, idle := firstDamping, 2.0, 0
	for range steps {
		if idle >= patience || s.cost <= perfect || damping >= maxDamping || ctx.Err() != nil {
			break
		}
		trial, predicted := s.step(damping)
		if trial == nil {
			damping, growth = damping*growth, growth*2
			continue
		}
		p.eval(trial, s.trialR, nil)
		cost := p.cost(s.trialR)
		if !(cost < s.cost) {
			if predicted <= negligible*s.cost {
				idle++
			}
			damping, growth = damping*growth, growth*2
			continue
		}
		if s.cost-cost <= negligible*s.cost {
			idle++
		} else {
			idle = 0
		}
		gain := 2*(s.cost-cost)/math.Max(predicted, 1e-300) - 1
		damping, growth = math.Max(1e-12, damping*math.Max(1./3, 1-gain*gain*gain)), 2
		copy(s.x, trial)
		s.linearize()
	}
	return minimum{x: s.x, cost: s.cost}
}

// descent is the state of a minimization, with the linear model at x.
type descent struct {
	p        *leastSquares
	x        []float64
	cost     float64
	r        []float64
	jac      *mat.Dense
	gradient []float64     // JᵀWr
	hessian  *mat.SymDense // JᵀWJ
	damped   *mat.SymDense
	free     []int
	trial    []float64
	trialR   []float64
}

func (s *descent) linearize() {
	n := len(s.x)
	s.p.eval(s.x, s.r, s.jac)
	s.cost = s.p.cost(s.r)
	clear(s.gradient)
	s.hessian.Zero()
	raw := s.hessian.RawSymmetric()
	for i, r := range s.r {
		// The Huber loss is replaced by a parabola that touches it at r and is not below it elsewhere.
		w := 1.0
		if size := math.Abs(r); i < s.p.robust && size > s.p.threshold {
			w = s.p.threshold / size
		}
		row := s.jac.RawRowView(i)
		for j, v := range row {
			if v == 0 {
				continue
			}
			v *= w
			s.gradient[j] += v * r
			sum := raw.Data[j*raw.Stride:]
			for k := j; k < n; k++ {
				sum[k] += v * row[k]
			}
		}
	}
	s.free = s.free[:0]
	for j, g := range s.gradient {
		if !(s.x[j] <= s.p.low[j] && g > 0 || s.x[j] >= s.p.high[j] && g < 0) {
			s.free = append(s.free, j)
		}
	}
}

// step returns the point after the damped step, or nil if it cannot be computed. predicted is the
// decrease in cost according to the linear model.
func (s *descent) step(damping float64) (trial []float64, predicted float64) {
	n := len(s.free)
	if n == 0 {
		return nil, 0
	}
	if s.damped == nil || s.damped.SymmetricDim() != n {
		s.damped = mat.NewSymDense(n, nil)
	}
	widest := 0.0
	for _, j := range s.free {
		widest = math.Max(widest, s.hessian.At(j, j))
	}
	right := make([]float64, n)
	for a, j := range s.free {
		for b := a; b < n; b++ {
			s.damped.SetSym(a, b, s.hessian.At(j, s.free[b]))
		}
		// A parameter without influence on the loss has no scale of its own.
		s.damped.SetSym(a, a, s.hessian.At(j, j)+damping*math.Max(s.hessian.At(j, j), 1e-9*widest))
		right[a] = -s.gradient[j]
	}
	var factor mat.Cholesky
	if !factor.Factorize(s.damped) {
		return nil, 0
	}
	move := mat.NewVecDense(n, nil)
	if err := factor.SolveVecTo(move, mat.NewVecDense(n, right)); err != nil {
		if _, condition := err.(mat.Condition); !condition {
			return nil, 0
		}
	}
	copy(s.trial, s.x)
	for a, j := range s.free {
		d := move.AtVec(a)
		if math.IsNaN(d) {
			return nil, 0
		}
		s.trial[j] = min(max(s.x[j]+d, s.p.low[j]), s.p.high[j])
	}
	for _, j := range s.free { // −2gᵀd − dᵀHd
		d := s.trial[j] - s.x[j]
		predicted -= 2 * d * s.gradient[j]
		for _, k := range s.free {
			predicted -= d * s.hessian.At(j, k) * (s.trial[k] - s.x[k])
		}
	}
	return s.trial, predicted
}

// Indices of the shared parameters in the parameter vector. The logarithms of the efficiencies
// follow, one for each group except the reference. The exponents are also fitted as logarithms, so
// that they stay positive and the prior is a parabola.
const (
	atA = iota // log A
	atAlpha
	atB
	atBeta
	atE
	shared // number of shared parameters
)

// names holds the names of the shared parameters, as in [Options].Fixed.
var names = [shared]string{"A", "alpha", "B", "beta", "E"}

// model is the law at given points, as a least-squares problem in the logarithms of its parameters.
type model struct {
	logN, logD, logLoss []float64
	group               []int     // for each point, the index of its efficiency, -1 for the reference
	fixed               []float64 // values of the fixed parameters, 0 for the free ones
	free                []int     // indices of the free parameters
	prior               float64   // weight of the two priors
}

// bounds returns the bounds of the parameters: wide enough for any meaningful law, but narrow
// enough to detect a parameter that diverges because nothing determines it.
func (m *model) bounds() (low, high []float64) {
	n := len(m.fixed)
	low = slices.Repeat([]float64{math.Log(1e-5)}, n) // of efficiencies
	high = slices.Repeat([]float64{math.Log(1e2)}, n)
	low[atA], high[atA] = -20, 60
	low[atB], high[atB] = -20, 60
	low[atE], high[atE] = -12, 6
	for _, j := range []int{atAlpha, atBeta} {
		low[j], high[j] = math.Log(1e-3), math.Log(4)
	}
	return low, high
}

// curve is the law for a full parameter vector.
type curve struct {
	logA, alpha, logB, beta, floor float64
	full                           []float64
}

func curveOf(full []float64) curve {
	alpha, beta, floor := math.Exp(full[atAlpha]), math.Exp(full[atBeta]), math.Exp(full[atE])
	return curve{full[atA], alpha, full[atB], beta, floor, full}
}

// terms returns the terms of the law for the size and the tokens of point i, and the logarithm of
// its efficiency.
func (c curve) terms(m *model, i int) (size, data, theta float64) {
	if g := m.group[i]; g >= 0 {
		theta = c.full[g]
	}
	return math.Exp(c.logA - c.alpha*(m.logN[i]+theta)), math.Exp(c.logB - c.beta*m.logD[i]), theta
}

// full returns the full parameter vector for given values of the free parameters.
func (m *model) full(x []float64) []float64 {
	full := slices.Clone(m.fixed)
	for k, j := range m.free {
		full[j] = x[k]
	}
	return full
}

func (m *model) reduce(full []float64) []float64 {
	return lists.Map(m.free, func(j int) float64 { return full[j] })
}

func (m *model) isFixed(j int) bool { return !slices.Contains(m.free, j) }

// problem returns the fit as a least-squares problem: residuals log L − log L̂, and the two priors.
func (m *model) problem(threshold float64) *leastSquares {
	low, high := m.bounds()
	column := slices.Repeat([]int{-1}, len(m.fixed)) // of the Jacobian; -1: the parameter is fixed
	for k, j := range m.free {
		column[j] = k
	}
	return &leastSquares{
		residuals: len(m.logN) + 2, robust: len(m.logN), threshold: threshold,
		low: m.reduce(low), high: m.reduce(high),
		eval: func(x, r []float64, jac *mat.Dense) { m.eval(m.full(x), column, r, jac) },
	}
}

func (m *model) eval(full []float64, column []int, r []float64, jac *mat.Dense) {
	c := curveOf(full)
	if jac != nil {
		jac.Zero()
	}
	var row []float64
	set := func(j int, v float64) {
		if k := column[j]; k >= 0 {
			row[k] = v
		}
	}
	for i := range m.logN {
		size, data, theta := c.terms(m, i)
		total := size + data + c.floor
		r[i] = m.logLoss[i] - math.Log(total)
		if jac == nil {
			continue
		}
		row, size, data = jac.RawRowView(i), size/total, data/total
		if g := m.group[i]; g >= 0 {
			set(g, c.alpha*size)
		}
		set(atA, -size)
		set(atAlpha, c.alpha*(m.logN[i]+theta)*size)
		set(atB, -data)
		set(atBeta, c.beta*m.logD[i]*data)
		set(atE, -c.floor/total)
	}
	for k, j := range []int{atAlpha, atBeta} {
		i := len(m.logN) + k
		r[i] = 0
		if m.prior == 0 || column[j] < 0 {
			continue
		}
		r[i] = math.Sqrt(m.prior) * (full[j] - math.Log(priorCenter))
		if jac != nil {
			row = jac.RawRowView(i)
			set(j, math.Sqrt(m.prior))
		}
	}
}
