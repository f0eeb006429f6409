package model

import (
	"math"
	"slices"
	"testing"

	"gonum.org/v1/gonum/mat"

	"github.com/cage-qat/cage/host/model/architecture"
	"github.com/cage-qat/cage/sdk/program"
)

// lossAndGradient evaluates a problem at x with the given noise.
func lossAndGradient(
	t *testing.T, m *Quadratic, x, noise []float32,
) (loss float64, gradient []float32) {
	t.Helper()
	bits := make([]int32, len(noise))
	for i, v := range noise {
		bits[i] = int32(math.Float32bits(v))
	}
	out := evaluate(t, m, [][]float32{x}, bits, m.settings.Rows,
		func(params []program.Value, batch program.Value) []program.Value {
			return lossesAndGradients(m, params, batch)
		})
	return float64(out[0][0]), out[1]
}

func drawn(seed uint64, n int) []float32 {
	return architecture.Float32s(drawNormals(generator(seed, 99, 0), n))
}

// TestQuadratic compares f(x) − f(x*), gradient and distance with their definitions in float64,
// where f(x) = ½·xᵀAx − bᵀx.
func TestQuadratic(t *testing.T) {
	const rows, n = 2, 12
	m := newQuadratic(architecture.Settings{Rows: rows, Dimension: n, Condition: 30, ProblemSeed: 3})
	x, noise := drawn(1, rows*n), drawn(2, rows*n)
	value := func(x []float32) float64 {
		total := 0.0
		for r := range rows {
			for i := range n {
				for j := range n {
					a := float64(m.matrix[i*n+j])
					total += 0.5*float64(x[r*n+i])*a*float64(x[r*n+j]) - a*float64(m.optimum[r*n+j])*float64(
						x[r*n+i])
				}
			}
		}
		return total
	}
	loss, gradient := lossAndGradient(t, m, x, noise)
	if want := value(x) - value(m.optimum); !(math.Abs(loss-want) <= 1e-5*want) {
		t.Errorf("f(x) − f(x*) is %v, want %v", loss, want)
	}
	if d := m.Distance(x); !(math.Abs(d*d/2-loss) <= 1e-5*loss) {
		t.Errorf("half the square of the distance %v is not %v", d, loss)
	}
	for i, got := range gradient {
		want := float64(noise[i])
		for j := range n {
			k := i/n*n + j
			want += float64(m.matrix[i%n*n+j]) * float64(x[k]-m.optimum[k])
		}
		if !(math.Abs(float64(got)-want) <= 1e-5) {
			t.Errorf("element %d of the gradient is %v, want %v", i, got, want)
		}
	}
	if loss, gradient := lossAndGradient(t, m, m.optimum, make([]float32, rows*n)); loss != 0 ||
		slices.Max(gradient) != 0 || slices.Min(gradient) != 0 {
		t.Errorf("at the optimum the loss is %v, the gradient %v", loss, gradient)
	}
}

// TestSpectrum checks that A is symmetric and has the requested eigenvalues for every seed, and
// that its eigenvectors depend on the seed.
func TestSpectrum(t *testing.T) {
	const n = 16
	var first []float32
	for seed := range int64(3) {
		for _, condition := range []float64{1, 10, 100} {
			m := newQuadratic(architecture.Settings{Rows: 1, Dimension: n, Condition: condition,
				ProblemSeed: seed})
			a := mat.NewSymDense(n, nil)
			for i := range n {
				for j := range n {
					if m.matrix[i*n+j] != m.matrix[j*n+i] {
						t.Fatalf("A is not symmetric at %d, %d", i, j)
					}
					a.SetSym(i, j, float64(m.matrix[i*n+j]))
				}
			}
			var eigen mat.EigenSym
			if !eigen.Factorize(a, false) {
				t.Fatal("no eigenvalues")
			}
			for i, got := range eigen.Values(nil) {
				want := math.Pow(condition, float64(i)/(n-1)-1)
				if !(math.Abs(got-want) <= 1e-6) {
					t.Errorf("κ = %v: eigenvalue %d is %v, want %v", condition, i, got, want)
				}
			}
			if condition == 100 {
				if slices.Equal(first, m.matrix) {
					t.Error("two seeds give the same matrix")
				}
				first = m.matrix
			}
		}
	}
	m := newQuadratic(architecture.Settings{Rows: 1, Dimension: 2, Spectrum: []float64{3, 5}})
	if trace := m.matrix[0] + m.matrix[3]; !(math.Abs(float64(trace)-8) <= 1e-6) {
		t.Errorf("the trace is %v, want that of the given spectrum, 8", trace)
	}
}

// TestRotationIsUniform checks that u·uᵀ has the mean I/n for the first eigenvectors u of many
// matrices.
func TestRotationIsUniform(t *testing.T) {
	const n, draws = 4, 2000
	var mean [n * n]float64
	for seed := range uint64(draws) {
		// With one eigenvalue 1 and the others nearly 0, A is the projection on its eigenvector.
		a := randomSymmetric([]float64{1, 1e-9, 1e-9, 1e-9}, generator(seed, rotationStream, 0))
		for i, v := range a {
			mean[i] += float64(v) / draws
		}
	}
	for i, got := range mean {
		want := 0.0
		if i%(n+1) == 0 {
			want = 1.0 / n
		}
		if !(math.Abs(got-want) <= 5*0.25/math.Sqrt(draws)) {
			t.Errorf("element %d of the mean of u·uᵀ is %v, want %v", i, got, want)
		}
	}
}

func toy(t *testing.T) *Quadratic {
	t.Helper()
	m, err := New(architecture.Settings{Kind: architecture.KindToy}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	return m.(*Quadratic)
}

// TestToy checks f(x) = ½(x − ½)².
func TestToy(t *testing.T) {
	m := toy(t)
	for _, x := range []float32{-3, 0.25, 0.5, 2} {
		loss, gradient := lossAndGradient(t, m, []float32{x}, []float32{0})
		away := float64(x) - 0.5
		if loss != away*away/2 || float64(gradient[0]) != away ||
			m.Distance([]float32{x}) != math.Abs(away) {
			t.Errorf("at %v: loss %v, gradient %v, distance %v", x, loss, gradient, m.Distance([]float32{x}))
		}
	}
}

// TestNoiseSource checks that noise has the requested standard deviation, that a batch is the same
// however it is reached, and that another index or seed gives another batch.
func TestNoiseSource(t *testing.T) {
	m := newQuadratic(architecture.Settings{Rows: 4, Dimension: 128, Condition: 1, Noise: 0.25})
	s := m.NoiseSource(7)
	batch := func(s *NoiseSource, index int64) []int32 {
		out := make([]int32, s.BatchLen())
		if err := s.At(index, out); err != nil {
			t.Fatal(err)
		}
		return out
	}
	squares, count := 0.0, 0
	for i := range int64(40) {
		if !slices.Equal(batch(m.NoiseSource(7), i), batch(s, i)) {
			t.Fatalf("batch %d differs when it is reached in order", i)
		}
		for _, bits := range batch(s, i) {
			v := float64(math.Float32frombits(uint32(bits)))
			squares, count = squares+v*v, count+1
		}
	}
	if std := math.Sqrt(squares / float64(count)); math.Abs(std/0.25-1) > 5/math.Sqrt(
		2*float64(count)) {
		t.Errorf("the standard deviation is %v, want 0.25", std)
	}
	if slices.Equal(batch(s, 0), batch(s, 1)) ||
		slices.Equal(batch(s, 0), batch(m.NoiseSource(8), 0)) {
		t.Error("two batches are the same")
	}
	quiet := toy(t).NoiseSource(1)
	if got := batch(quiet, 3); math.Float32frombits(uint32(got[0])) != 0 {
		t.Errorf("without noise there is %v", got)
	}
	some := batch(s, 0)
	for _, err := range []error{s.At(-1, some), s.At(0, some[1:])} {
		if err == nil {
			t.Error("no error for a batch that does not exist, or no room for it")
		}
	}
}

func TestQuadraticParams(t *testing.T) {
	m := newQuadratic(architecture.Settings{Rows: 2, Dimension: 3, Condition: 10, StartStd: 1})
	if p := m.Params(); len(p) != 1 || !p[0].Quantized || p[0].Decay ||
		!slices.Equal(p[0].Dims, []int{2, 3}) || m.ActivationSites(1, 1) != nil {
		t.Errorf("parameters are %+v", p)
	}
}

// TestLargeQuadratic checks that the matrix of a problem may be larger than the constants of
// plugins.
func TestLargeQuadratic(t *testing.T) {
	const n = 2112
	m := newQuadratic(architecture.Settings{Rows: 1, Dimension: n, Condition: 1, ProblemSeed: 1,
		Spectrum: make([]float64, n), Optimum: make([]float64, n)})
	if _, err := m.Program(ProgramOptions{}); err != nil {
		t.Error(err)
	}
}
