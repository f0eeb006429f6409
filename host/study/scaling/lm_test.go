package scaling

import (
	"context"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"gonum.org/v1/gonum/diff/fd"
	"gonum.org/v1/gonum/mat"
)

func unbounded(n int) (low, high []float64) {
	for range n {
		low, high = append(low, math.Inf(-1)), append(high, math.Inf(1))
	}
	return low, high
}

// rosenbrock returns the function of Rosenbrock (1960) as a sum of squares.
func rosenbrock() *leastSquares {
	low, high := unbounded(2)
	return &leastSquares{residuals: 2, robust: 2, threshold: math.Inf(1), low: low, high: high,
		eval: func(x, r []float64, jac *mat.Dense) {
			r[0], r[1] = 10*(x[1]-x[0]*x[0]), 1-x[0]
			if jac != nil {
				jac.SetRow(0, []float64{-20 * x[0], 10})
				jac.SetRow(1, []float64{-1, 0})
			}
		}}
}

func TestMinimizeRosenbrock(t *testing.T) {
	m := rosenbrock().minimize(context.Background(), []float64{-1.2, 1}, 200)
	if math.Abs(m.x[0]-1) > 1e-8 || math.Abs(m.x[1]-1) > 1e-8 {
		t.Errorf("came to %v with cost %v, want (1, 1)", m.x, m.cost)
	}
}

// TestMinimizeStaysWithinBounds checks a minimum at the bound x₀ ≤ ½, which is on the parabola.
func TestMinimizeStaysWithinBounds(t *testing.T) {
	p := rosenbrock()
	p.high[0] = 0.5
	m := p.minimize(context.Background(), []float64{-1.2, 1}, 200)
	if m.x[0] != 0.5 || math.Abs(m.x[1]-0.25) > 1e-8 {
		t.Errorf("came to %v, want (0.5, 0.25)", m.x)
	}
	if m := p.minimize(context.Background(), []float64{7, 1}, 200); m.x[0] != 0.5 {
		t.Errorf("from outside the bounds it came to %v", m.x)
	}
}

// line returns the problem of fitting a straight line with the Huber loss.
func line(x, y []float64, threshold float64) *leastSquares {
	low, high := unbounded(2)
	return &leastSquares{residuals: len(x), robust: len(x), threshold: threshold, low: low, high: high,
		eval: func(c, r []float64, jac *mat.Dense) {
			for i := range x {
				r[i] = y[i] - c[0] - c[1]*x[i]
				if jac != nil {
					jac.SetRow(i, []float64{-1, -x[i]})
				}
			}
		}}
}

// TestMinimizeHuber checks that at the minimum, clipped residuals are orthogonal to the columns.
func TestMinimizeHuber(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	var x, y []float64
	for i := range 40 {
		x = append(x, float64(i)/10)
		y = append(y, 1+2*x[i]+0.01*random.NormFloat64())
	}
	y[3], y[30] = 9, -50 // two outliers
	const threshold = 0.02
	m := line(x, y, threshold).minimize(context.Background(), []float64{0, 0}, 2000)
	if math.Abs(m.x[0]-1) > 0.02 || math.Abs(m.x[1]-2) > 0.02 {
		t.Errorf("came to %v in spite of ρ, want about (1, 2)", m.x)
	}
	var sum, moment float64
	for i := range x {
		r := y[i] - m.x[0] - m.x[1]*x[i]
		r = min(max(r, -threshold), threshold)
		sum, moment = sum+r, moment+r*x[i]
	}
	if math.Abs(sum) > 1e-6 || math.Abs(moment) > 1e-6 {
		t.Errorf("the slope of the cost at %v is (%g, %g), want 0", m.x, sum, moment)
	}
}

func TestCost(t *testing.T) {
	p := &leastSquares{robust: 2, threshold: 0.5}
	// 0.3² below the threshold, 0.5·(2·2 − 0.5) above it, and a prior, which is always squared.
	if got, want := p.cost([]float64{0.3, -2, 3}), 0.09+1.75+9; math.Abs(got-want) > 1e-15 {
		t.Errorf("cost %v, want %v", got, want)
	}
	if got := p.cost([]float64{math.NaN(), 0}); !math.IsInf(got, 1) {
		t.Errorf("cost %v of what is not a number", got)
	}
}

// TestDerivatives compares the derivatives of the law with finite differences at random parameters.
func TestDerivatives(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	points := synthesize(random, truth(random), []float64{1e7, 1e8, 1e9}, []float64{10, 100}, 0.01)
	f, err := newFitting(points, Options{Prior: 0.01})
	if err != nil {
		t.Fatal(err)
	}
	for _, held := range []int{-1, atA, atBeta} {
		m := f.model
		m.free = slices.DeleteFunc(slices.Clone(m.free), func(j int) bool { return j == held })
		if held >= 0 {
			m.fixed[held] = 0.7
		}
		p := m.problem(math.Inf(1))
		for range 5 {
			full := []float64{3 * random.Float64(), math.Log(0.05 + random.Float64()), 5 * random.Float64(),
				math.Log(0.05 + random.Float64()), random.Float64()}
			for range len(m.fixed) - shared {
				full = append(full, -random.Float64())
			}
			x := m.reduce(full)
			r, got, want := make([]float64, p.residuals), mat.NewDense(p.residuals, len(x), nil),
				mat.NewDense(p.residuals, len(x), nil)
			p.eval(x, r, got)
			fd.Jacobian(want, func(r, x []float64) { p.eval(x, r, nil) }, x,
				&fd.JacobianSettings{Formula: fd.Central})
			if !mat.EqualApprox(got, want, 1e-7) {
				t.Fatalf("derivatives with %d held differ by more than 1e-7", held)
			}
		}
	}
}
