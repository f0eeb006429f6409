package scaling

import (
	"math"
	"slices"

	"gonum.org/v1/gonum/mat"
)

// Places of the shared parameters in the vector that is fitted; the logarithms of the
// efficiencies follow, one for each group but the reference. The exponents are fitted as
// logarithms, too: they stay positive, and the prior is a parabola.
const (
	atA = iota // log A
	atAlpha
	atB
	atBeta
	atE
	shared // number of shared parameters
)

// names of the shared parameters, as in [Options.Fixed].
var names = [shared]string{"A", "alpha", "B", "beta", "E"}

// model is the law for given points as a problem in the logarithms of its parameters.
type model struct {
	logN, logD, logLoss []float64
	group               []int     // of each point: the place of its efficiency, -1 for the reference
	fixed               []float64 // values of the parameters that are held, 0 for the others
	free                []int     // places of those that are fitted
	prior               float64   // the weight of the two priors
}

// bounds of the parameters: wide enough for any law that means something, and
// narrow enough to notice a parameter that diverges because nothing determines it.
func (m *model) bounds() (low, high []float64) {
	n := len(m.fixed)
	low, high = slices.Repeat([]float64{math.Log(1e-5)}, n), slices.Repeat([]float64{math.Log(1e2)}, n) // efficiencies
	low[atA], high[atA] = -20, 60
	low[atB], high[atB] = -20, 60
	low[atE], high[atE] = -12, 6
	for _, j := range []int{atAlpha, atBeta} {
		low[j], high[j] = math.Log(1e-3), math.Log(4)
	}
	return low, high
}

// curve is the law at a vector of all parameters.
type curve struct {
	logA, alpha, logB, beta, floor float64
	full                           []float64
}

func curveOf(full []float64) curve {
	return curve{full[atA], math.Exp(full[atAlpha]), full[atB], math.Exp(full[atBeta]), math.Exp(full[atE]), full}
}

// terms returns the terms of the law that fall with the size and the tokens of a point, and
// the logarithm of its efficiency.
func (c curve) terms(m *model, i int) (size, data, theta float64) {
	if g := m.group[i]; g >= 0 {
		theta = c.full[g]
	}
	return math.Exp(c.logA - c.alpha*(m.logN[i]+theta)), math.Exp(c.logB - c.beta*m.logD[i]), theta
}

// full puts the fitted parameters and those that are held together.
func (m *model) full(x []float64) []float64 {
	full := slices.Clone(m.fixed)
	for k, j := range m.free {
		full[j] = x[k]
	}
	return full
}

// reduce is the inverse of full: it leaves out what is held.
func (m *model) reduce(full []float64) []float64 {
	x := make([]float64, len(m.free))
	for k, j := range m.free {
		x[k] = full[j]
	}
	return x
}

func (m *model) isFixed(j int) bool { return !slices.Contains(m.free, j) }

// problem is the fit as least squares: residuals log L − log L̂, and the two priors.
func (m *model) problem(threshold float64) *leastSquares {
	low, high := m.bounds()
	column := slices.Repeat([]int{-1}, len(m.fixed)) // of the Jacobian; -1: the parameter is held
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
