package model

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"

	"github.com/cage-qat/cage/host/compute/stage"
	"github.com/cage-qat/cage/host/model/architecture"
	"github.com/cage-qat/cage/host/model/network"
	"github.com/cage-qat/cage/internal/lists"
	"github.com/cage-qat/cage/sdk/program"
)

// Quadratic is the problem f(x) = ½·xᵀAx − bᵀx with A = UΛUᵀ and b = Ax*, summed over
// the rows of x, whose gradient is observed with noise (CAGE paper, synthetic experiments). Its one
// parameter, x, is quantized.
//
// Everything is computed from x − x*, as f(x) − f(x*) = ½(x−x*)ᵀA(x−x*), so that float32
// does not lose small differences from f(x*).
type Quadratic struct {
	settings architecture.Settings
	matrix   []float32 // A, symmetric
	optimum  []float32
}

var _ Model = (*Quadratic)(nil)

func newQuadratic(s architecture.Settings) *Quadratic {
	m := &Quadratic{settings: s}
	spectrum := s.Spectrum
	if spectrum == nil {
		spectrum = []float64{1}
		if s.Dimension > 1 { // log-spaced from 1/κ to 1
			spectrum = floats.LogSpan(make([]float64, s.Dimension), 1/s.Condition, 1)
		}
	}
	seed := uint64(s.ProblemSeed)
	m.matrix = randomSymmetric(spectrum, generator(seed, rotationStream, 0))
	optimum := s.Optimum
	if optimum == nil {
		optimum = drawNormals(generator(seed, optimumStream, 0), s.Rows*s.Dimension)
	}
	m.optimum = architecture.Float32s(optimum)
	return m
}

// randomSymmetric returns UΛUᵀ for Haar-distributed orthogonal eigenvectors U: the Q factor of a
// normal matrix, with the signs that make the diagonal of R positive (Mezzadri, 2007).
func randomSymmetric(spectrum []float64, rng *rand.Rand) []float32 {
	n := len(spectrum)
	var qr mat.QR
	qr.Factorize(mat.NewDense(n, n, drawNormals(rng, n*n)))
	var u, r, scaled mat.Dense
	qr.QTo(&u)
	qr.RTo(&r)
	scaled.Apply(func(_, j int, v float64) float64 {
		return math.Copysign(1, r.At(j, j)) * v * math.Sqrt(spectrum[j])
	}, &u)
	var a mat.SymDense
	a.SymOuterK(1, &scaled)
	return lists.Make(n*n, func(i int) float32 { return float32(a.At(i/n, i%n)) })
}

// Params implements [Model].
func (m *Quadratic) Params() []architecture.Param { return m.settings.Params() }

// BatchDims implements [Model]: a batch is the noise of the gradient, [rows, dimension], as the
// bits of float32 numbers. [Quadratic.NoiseSource] draws it; zeros mean no noise.
func (m *Quadratic) BatchDims(_, _ int) []int {
	return []int{m.settings.Rows, m.settings.Dimension}
}

// Program implements [Model]. Losses are f(x) − f(x*), [1]; the gradient is A(x − x*) plus the
// noise.
func (m *Quadratic) Program(_ ProgramOptions, wrt ...string) (*program.Program, error) {
	wide := func(v float32) float64 { return float64(v) }
	p, err := network.Quadratic(m.Params()[0], lists.Map(m.matrix, wide), lists.Map(m.optimum, wide))
	if err != nil {
		return nil, err
	}
	return network.Gradient(p, wrt...)
}

// Calls implements [Model].
func (m *Quadratic) Calls(network.Shape) stage.Calls { return stage.Calls{Rounded: true} }

// Distance returns the length of x − x* in the norm of A, √((x−x*)ᵀA(x−x*)), for x in
// row-major order.
func (m *Quadratic) Distance(x []float32) float64 {
	n := m.settings.Dimension
	total := 0.0
	for start := 0; start+n <= len(x); start += n {
		away := lists.Make(n, func(i int) float64 {
			return float64(x[start+i]) - float64(m.optimum[start+i])
		})
		for i, d := range away {
			for j, a := range m.matrix[i*n : (i+1)*n] {
				total += d * float64(a) * away[j]
			}
		}
	}
	return math.Sqrt(max(0, total))
}

// ActivationSites implements [Model] and returns none.
func (m *Quadratic) ActivationSites(_, _ int) []ActivationSite { return nil }

// StepFLOPs implements [Model]: one product with A and a few operations on each element.
func (m *Quadratic) StepFLOPs(_, _ int) float64 {
	return float64(m.settings.Rows) * float64(m.settings.Dimension) * float64(2*m.settings.Dimension+4)
}

// Independent random streams of one seed.
const (
	rotationStream = 1 + iota
	optimumStream
	noiseStream
)

func generator(seed, stream, index uint64) *rand.Rand {
	var key [32]byte
	for i, v := range []uint64{seed, stream, index} {
		binary.LittleEndian.PutUint64(key[8*i:], v)
	}
	return rand.New(rand.NewChaCha8(key))
}

func drawNormals(rng *rand.Rand, n int) []float64 {
	return lists.Make(n, func(int) float64 { return rng.NormFloat64() })
}

// NoiseSource draws the batches of a [Quadratic]. Batch i is always the same, so that a resumed
// training run gets the same noise.
type NoiseSource struct {
	n    int
	std  float64
	seed uint64
}

// NoiseSource returns the source of the problem's noise for a seed.
func (m *Quadratic) NoiseSource(seed uint64) *NoiseSource {
	return &NoiseSource{n: m.settings.Rows * m.settings.Dimension, std: m.settings.Noise, seed: seed}
}

// BatchLen returns the number of elements of a batch.
func (s *NoiseSource) BatchLen() int { return s.n }

// At fills dst with the batch of the given index, as the bits of float32 numbers drawn from N(0,
// noise²).
func (s *NoiseSource) At(index int64, dst []int32) error {
	if index < 0 || len(dst) != s.n {
		return fmt.Errorf("noise: batch %d has %d numbers, want %d", index, len(dst), s.n)
	}
	rng := generator(s.seed, noiseStream, uint64(index))
	for i := range dst {
		dst[i] = int32(math.Float32bits(float32(s.std * rng.NormFloat64())))
	}
	return nil
}
