package posttrain_test

import (
	"math"
	"math/rand/v2"
	"slices"

	"github.com/cage-qat/cage/host/cage"
	"github.com/cage-qat/cage/host/deploy/posttrain"
)

// integers returns the levels of b bits, −2^(b−1) … 2^(b−1)−1.
func integers(bits int) cage.Levels {
	numbers := map[int32]float32{}
	for c := -(1 << (bits - 1)); c < 1<<(bits-1); c++ {
		numbers[int32(c)] = float32(c)
	}
	return cage.NewLevels(numbers)
}

// full returns a grid of integers whose scales follow from the largest element of each group.
func full(w []float64, columns, group, bits int) *posttrain.Grid {
	rows := len(w) / columns
	g := &posttrain.Grid{Levels: integers(bits), Rows: rows, Columns: columns, Group: group}
	for k := range rows * g.Groups() {
		at := k/g.Groups()*columns + k%g.Groups()*group
		g.Scales = append(g.Scales, fullScale(w[at:min(at+group, (k/g.Groups()+1)*columns)], bits))
	}
	return g
}

func fullScale(group []float64, bits int) float64 {
	largest := 0.0
	for _, v := range group {
		largest = max(largest, math.Abs(v))
	}
	return 2 * largest / float64(int(1)<<bits-1)
}

// current returns a function that computes the scales of a group from the current weights.
func current(g *posttrain.Grid, bits int) func(int, []float64) ([]float64, error) {
	return func(group int, w []float64) (scales []float64, err error) {
		for i := range g.Rows {
			from := i*g.Columns + group*g.Group
			scales = append(scales, fullScale(w[from:min(from+g.Group, (i+1)*g.Columns)], bits))
		}
		return scales, nil
	}
}

// hessian returns the Hessian of inputs [samples, features].
func hessian(x []float64, features int) *posttrain.Hessian {
	samples := len(x) / features
	h := &posttrain.Hessian{Size: features, Data: make([]float64, features*features)}
	for s := range samples {
		row := x[s*features : (s+1)*features]
		for i, a := range row {
			for j, b := range row {
				h.Data[i*features+j] += 2 * a * b / float64(samples)
			}
		}
	}
	return h
}

func clone(h *posttrain.Hessian) *posttrain.Hessian {
	out := *h
	out.Data = slices.Clone(h.Data)
	return &out
}

func difference(a, b []float64) []float64 {
	out := make([]float64, len(a))
	for i := range a {
		out[i] = a[i] - b[i]
	}
	return out
}

// problem returns a random matrix and inputs with correlated features.
func problem(seed uint64, rows, columns, samples int) (w, x []float64) {
	rng := rand.New(rand.NewPCG(seed, 1))
	w, x = make([]float64, rows*columns), make([]float64, samples*columns)
	for i := range w {
		w[i] = rng.NormFloat64()
	}
	for s := range samples {
		common := rng.NormFloat64()
		for j := range columns {
			x[s*columns+j] = (rng.NormFloat64() + common) * float64(1+j%7)
		}
	}
	return w, x
}

// outputError returns ‖X·dᵀ‖² for n inputs with this Hessian.
func outputError(h *posttrain.Hessian, n int, d []float64) float64 {
	sum := 0.0
	for row := range slices.Chunk(d, h.Size) {
		for i, a := range row {
			for j, b := range row {
				sum += a * h.Data[i*h.Size+j] * b
			}
		}
	}
	return sum * float64(n) / 2
}
