package model

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/support/exceptions"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"

	"github.com/cage-qat/cage/host/engine"
	"github.com/cage-qat/cage/host/engine/autodiff"
)

// QuadraticConfig describes a [Quadratic]. Lists that are nil are drawn.
type QuadraticConfig struct {
	Rows, Dimension int // shape of the point x; each row is a problem of its own with the same A
	// Condition is κ(A): the eigenvalues of A are spaced evenly in their logarithm from 1/κ to 1. The only eigenvalue
	// of a matrix of dimension 1 is 1.
	Condition float64
	Spectrum  []float64 // the eigenvalues instead
	Optimum   []float64 // x*, row by row; nil: from N(0, I)
	Start     []float64 // the point at which training starts, row by row; nil: from N(0, StartStd²·I)
	StartStd  float64
	Noise     float64 // standard deviation of what is added to each element of the gradient
	Seed      uint64  // of the eigenvectors and the optimum; those of start and noise are the caller's
}

// ToyConfig describes f(x) = ½(x − ½)² on the numbers, the problem of the CAGE paper's section on Pareto-optimal points.
func ToyConfig() QuadraticConfig {
	return QuadraticConfig{Rows: 1, Dimension: 1, Condition: 1, Optimum: []float64{0.5}}
}

// largest bounds the shapes of problems: A is dense, and its eigenvectors are computed.
const largestDimension, largestRows = 4096, 4096

// Validate reports everything that is wrong with the description.
func (c QuadraticConfig) Validate() error {
	var errs []error
	add := func(wrong bool, format string, args ...any) {
		if wrong {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	add(c.Dimension < 1 || c.Dimension > largestDimension, "dimension is %d, must be from 1 to %d", c.Dimension, largestDimension)
	add(c.Rows < 1 || c.Rows > largestRows, "rows is %d, must be from 1 to %d", c.Rows, largestRows)
	add(c.Spectrum == nil && !(c.Condition >= 1 && c.Condition <= 1e12), "condition is %g, must be from 1 to 1e12", c.Condition)
	add(!(c.StartStd >= 0 && c.StartStd <= 1e12), "standard deviation of the start is %g, must be from 0 to 1e12", c.StartStd)
	add(!(c.Noise >= 0 && c.Noise <= 1e12), "noise is %g, must be from 0 to 1e12", c.Noise)
	for _, list := range []struct {
		name   string
		values []float64
		want   int
	}{{"spectrum", c.Spectrum, c.Dimension}, {"optimum", c.Optimum, c.Rows * c.Dimension}, {"start", c.Start, c.Rows * c.Dimension}} {
		add(list.values != nil && len(list.values) != list.want, "%s has %d numbers, must have %d", list.name, len(list.values), list.want)
		add(slices.ContainsFunc(list.values, func(v float64) bool { return !(math.Abs(v) <= 1e12) }), "%s has a number that is not finite or beyond 1e12", list.name)
	}
	add(slices.ContainsFunc(c.Spectrum, func(v float64) bool { return v <= 0 }), "spectrum has a number that is not positive")
	return errors.Join(errs...)
}

// Quadratic is the problem f(x) = ½·xᵀAx − bᵀx with A = UΛUᵀ and b = Ax*, summed over the rows of x, whose gradient is
// seen through noise (CAGE paper, synthetic experiments). There is one parameter, x, and it is quantized.
//
// Everything is computed from x − x*, as f(x) − f(x*) = ½(x−x*)ᵀA(x−x*), so that float32 does not lose what is small
// beside f(x*).
type Quadratic struct {
	config  QuadraticConfig
	matrix  []float32 // A, symmetric
	optimum []float32
}

var _ Model = (*Quadratic)(nil)

// NewQuadratic returns the problem of the given description.
func NewQuadratic(config QuadraticConfig) (*Quadratic, error) {
	if err := config.Validate(); err != nil {
		return nil, fmt.Errorf("quadratic: %w", err)
	}
	m := &Quadratic{config: config}
	spectrum := config.Spectrum
	if spectrum == nil {
		spectrum = logSpaced(config.Condition, config.Dimension)
	}
	m.matrix = rotated(spectrum, generator(config.Seed, rotationStream, 0))
	optimum := config.Optimum
	if optimum == nil {
		optimum = normals(generator(config.Seed, optimumStream, 0), config.Rows*config.Dimension)
	}
	m.optimum = singles(optimum)
	return m, nil
}

// logSpaced returns n numbers from 1/κ to 1, evenly spaced in their logarithm.
func logSpaced(condition float64, n int) []float64 {
	if n == 1 {
		return []float64{1}
	}
	return floats.LogSpan(make([]float64, n), 1/condition, 1)
}

// rotated returns UΛUᵀ for eigenvectors U that are uniform over all rotations and reflections: Q of a matrix of normal
// numbers, with the signs that make the diagonal of R positive (Mezzadri, 2007).
func rotated(spectrum []float64, rng normalSource) []float32 {
	n := len(spectrum)
	var qr mat.QR
	qr.Factorize(mat.NewDense(n, n, normals(rng, n*n)))
	var u, r, scaled mat.Dense
	qr.QTo(&u)
	qr.RTo(&r)
	scaled.Apply(func(_, j int, v float64) float64 {
		return math.Copysign(1, r.At(j, j)) * v * math.Sqrt(spectrum[j])
	}, &u)
	var a mat.SymDense
	a.SymOuterK(1, &scaled)
	out := make([]float32, n*n)
	for i := range out {
		out[i] = float32(a.At(i/n, i%n))
	}
	return out
}

func singles(values []float64) []float32 {
	out := make([]float32, len(values))
	for i, v := range values {
		out[i] = float32(v)
	}
	return out
}

// Config returns the description.
func (m *Quadratic) Config() QuadraticConfig { return m.config }

// Optimum returns x*, row by row.
func (m *Quadratic) Optimum() []float32 { return slices.Clone(m.optimum) }

// Params implements [Model]: x, [rows, dimension], a matrix whose rows are what a quantizer scales. It does not decay.
func (m *Quadratic) Params() []Param {
	p := Param{Name: "x", Dims: []int{m.config.Rows, m.config.Dimension}, Role: RoleMatrix, Quantized: true, InitStd: m.config.StartStd}
	if m.config.Start != nil {
		p.Start = singles(m.config.Start)
	}
	return []Param{p}
}

// BatchDims implements [Model]: a batch is the gradient's noise, [rows, dimension], as the bits of float32 numbers.
// [Quadratic.NoiseSource] draws it; zeros are no noise.
func (m *Quadratic) BatchDims(_, _ int) []int { return []int{m.config.Rows, m.config.Dimension} }

// Losses implements [Model]: it returns f(x) − f(x*), [1]. Its gradient is A(x − x*) plus the noise.
func (m *Quadratic) Losses(params []*graph.Node, batch *graph.Node, _ ActivationQuantizer) *graph.Node {
	rows, n := m.config.Rows, m.config.Dimension
	if len(params) != 1 || !sameDims(params[0].Shape().Dimensions, []int{rows, n}) {
		exceptions.Panicf("quadratic: want one parameter of shape [%d, %d]", rows, n)
	}
	x, g := params[0], batch.Graph()
	noise := graph.Bitcast(batch, dtypes.Float32)
	away := graph.Sub(x, engine.Constant(g, m.optimum, rows, n))
	gradient := times(away, engine.Constant(g, m.matrix, n, n)) // A is symmetric
	value := graph.Reshape(graph.MulScalar(graph.ReduceAllSum(graph.Mul(away, gradient)), 0.5), 1)
	return autodiff.Custom(value, []*graph.Node{x}, func(dy *graph.Node) []*graph.Node {
		return []*graph.Node{graph.Mul(graph.Add(gradient, noise), graph.InsertAxes(dy, 0))}
	})
}

// Distance returns the length of x − x* in the norm of A, √((x−x*)ᵀA(x−x*)), for x row by row.
func (m *Quadratic) Distance(x []float32) float64 {
	n := m.config.Dimension
	total := 0.0
	for start := 0; start+n <= len(x); start += n {
		away := make([]float64, n)
		for i := range away {
			away[i] = float64(x[start+i]) - float64(m.optimum[start+i])
		}
		for i, d := range away {
			for j, a := range m.matrix[i*n : (i+1)*n] {
				total += d * float64(a) * away[j]
			}
		}
	}
	return math.Sqrt(max(0, total))
}

// ActivationSites implements [Model]: there are none.
func (m *Quadratic) ActivationSites(_, _ int) []ActivationSite { return nil }

// StepFLOPs implements [Model]: one product with A and a few operations on each element.
func (m *Quadratic) StepFLOPs(_, _ int) float64 {
	return float64(m.config.Rows) * float64(m.config.Dimension) * float64(2*m.config.Dimension+4)
}
