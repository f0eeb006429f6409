package main

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/cage-qat/cage/host/testing/plugintest"
	"github.com/cage-qat/cage/internal/testing/golden"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/reference"
	"github.com/cage-qat/cage/sdk/spec"
)

// TestDue checks that the first bases are due before the second update, and new ones every freq
// updates after it.
func TestDue(t *testing.T) {
	for freq, want := range map[int][]int{1: {2, 3, 4, 5, 6, 7, 8, 9, 10}, 2: {2, 4, 6, 8, 10},
		3: {2, 5, 8}, 10: {2}} {
		p := plugintest.BuildOptimizer(t, soap{}, map[string]any{"freq": freq}, plugintest.Matrix(2, 3))
		var got []int
		for step := 1; step <= 10; step++ {
			due, first := p.Due.At(step)
			if due {
				got = append(got, step)
			}
			if first != (step == 2) {
				t.Errorf("freq %d: update %d is the first: %v", freq, step, first)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("freq %d: due at %v, want %v", freq, got, want)
		}
	}
}

// runReference runs body on the reference implementation.
func runReference(
	t *testing.T, body func(b *program.Builder, in []program.Value) []program.Value,
	x ...reference.Tensor,
) [][]float64 {
	t.Helper()
	return plugintest.Reference().Eval(t, body, x...)
}

func TestSort(t *testing.T) {
	v, keys := reference.Floats([]float64{1, 2, 3, 4, 5, 6}, 2, 3), []float64{1, 3, 2}
	for axis, want := range [][]float64{{4, 5, 6, 1, 2, 3}, {2, 3, 1, 5, 6, 4}} {
		k := [][]float64{{0, 1}, keys}[axis]
		got := runReference(t, func(_ *program.Builder, in []program.Value) []program.Value {
			return []program.Value{sort(in[0], axis, in[1])}
		}, v, reference.Floats(k, len(k)))[0]
		plugintest.Near(t, fmt.Sprint("axis ", axis), got, want, 0)
	}
}

// TestIterate checks that power iteration converges to the sorted eigenvectors, and that rebase
// changes from the old basis to the new one.
func TestIterate(t *testing.T) {
	// The eigenvalues of Q·diag(d)·Qᵀ are d for any orthonormal Q.
	const n = 5
	d := []float64{16, 8, 4, 2, 1}
	out := runReference(t, func(b *program.Builder, in []program.Value) []program.Value {
		truth := in[0].QR()
		f := product(truth.Mul(b.Table(d, 1, n)), truth, 1, 1)
		q := identity(b, n)
		turned := identity(b, n)
		for range 80 {
			next, _, _ := iterate(f, q)
			turned = rebase(turned, 1, q, next)
			q = next
		}
		return []program.Value{product(product(q, f, 0, 0), q, 1, 0), product(q, q, 0, 0), q, turned}
	}, normal(1, n, n))
	want := make([]float64, n*n)
	eye := make([]float64, n*n)
	for i := range n {
		want[i*n+i], eye[i*n+i] = d[i], 1
	}
	plugintest.Near(t, "QᵀFQ", out[0], want, 1e-12)
	plugintest.Near(t, "QᵀQ", out[1], eye, 1e-12)
	plugintest.Near(t, "the turns one after the other", out[3], out[2], 1e-12)
}

func normal(seed uint64, shape ...int) reference.Tensor {
	return reference.Floats(plugintest.Normal(seed, shape...).Data, shape...)
}

// TestEmpty checks that a factor that is zero or not finite leaves basis and moments of its side
// unchanged, while the other side is refreshed.
func TestEmpty(t *testing.T) {
	for name, factor := range map[string][]float64{
		"zero":     {0, 0, 0, 0},
		"NaN":      {1, math.NaN(), math.NaN(), 1},
		"infinite": {math.Inf(1), 0, 0, 1},
	} {
		t.Run(name, func(t *testing.T) {
			p := plugintest.BuildOptimizer(t, soap{}, nil, plugintest.Matrix(2, 3))
			state := map[string]reference.Tensor{spec.InputStep: reference.Float(12)}
			for i, s := range p.State {
				state[spec.StatePrefix+s.Name] = normal(uint64(i), s.Shape...)
			}
			c, s := 0.6, 0.8
			basis0 := []float64{c, -s, s, c}
			eye := []float64{1, 0, 0, 0, 1, 0, 0, 0, 1}
			state["state.basis0"] = reference.Floats(basis0, 2, 2)
			state["state.factor0"] = reference.Floats(factor, 2, 2)
			state["state.basis1"] = reference.Floats(eye, 3, 3)
			state["state.factor1"] = reference.Floats([]float64{1, 0, 0, 0, 3, 0, 0, 0, 2}, 3, 3)
			out := plugintest.Reference().Run(t, p.Refresh, state)
			plugintest.Near(t, "basis0", out["state.basis0"].Floats, basis0, 0)
			// The new order of the other side's axes is 1, 2, 0.
			var wantM, wantV []float64
			for row := range 2 {
				for _, col := range []int{1, 2, 0} {
					wantM = append(wantM, math.Abs(state["state.m"].Floats[3*row+col]))
					wantV = append(wantV, state["state.v"].Floats[3*row+col])
				}
			}
			gotM := slices.Clone(out["state.m"].Floats) // up to the signs of columns
			for i, v := range gotM {
				gotM[i] = math.Abs(v)
			}
			plugintest.Near(t, "m", gotM, wantM, 1e-15)
			plugintest.Near(t, "v", out["state.v"].Floats, wantV, 0)
		})
	}
}

// TestDeficient checks that a singular factor determines as many axes as its rank, and that the
// basis is orthonormal.
func TestDeficient(t *testing.T) {
	turned := reference.Floats([]float64{0.6, -0.8, 0.8, 0.6}, 2, 2)
	for _, c := range []struct {
		name         string
		factor, want []float64 // magnitudes: the signs of columns are free
	}{
		{"zero row", []float64{4, 0, 0, 0}, []float64{1, 0, 0, 1}},
		{"zero row first", []float64{0, 0, 0, 1e-30}, []float64{0, 1, 1, 0}},
		{"rank 1", []float64{1, 2, 2, 4}, []float64{math.Sqrt(0.2), math.Sqrt(0.8), math.Sqrt(0.8),
			math.Sqrt(0.2)}},
	} {
		out := runReference(t, func(_ *program.Builder, in []program.Value) []program.Value {
			basis, _, ok := iterate(in[0], in[1])
			return []program.Value{basis.Abs(), product(basis, basis, 0, 0), ok.Convert(program.Float)}
		}, reference.Floats(c.factor, 2, 2), turned)
		plugintest.Near(t, c.name, out[0], c.want, 1e-14)
		plugintest.Near(t, c.name+": QᵀQ", out[1], []float64{1, 0, 0, 1}, 1e-14)
		plugintest.Near(t, c.name+": used", out[2], []float64{1}, 0)
	}
}

// TestZeroRows checks that rows without gradients, such as those of tokens that do not occur, do
// not move, and that the others move as if they were alone, bases included. The basis stays
// orthonormal when all rows get gradients.
func TestZeroRows(t *testing.T) {
	// Apart from the zero rows, the first factors lack at most one axis.
	const rows, seen, cols, steps = 6, 3, 4, 40
	at := [seen]int{0, 2, 3}
	few := plugintest.Normal(5, steps, seen, cols)
	gradients := golden.Array{Shape: []int{steps, rows, cols}, Data: make([]float64, steps*rows*cols)}
	for s := range steps {
		for i, row := range at {
			copy(gradients.Data[(s*rows+row)*cols:][:cols], few.Data[(s*seen+i)*cols:])
		}
	}
	pick := func(data []float64) (out []float64) {
		for _, row := range at {
			out = append(out, data[row*cols:][:cols]...)
		}
		return out
	}
	start := plugintest.Normal(6, rows, cols).Data
	plugintest.Each(t, func(t *testing.T, m plugintest.Bench) {
		given := map[string]any{"freq": 2}
		tolerance := 1e-9 // rounding errors of zeros in a rotation, divided by the ε of Adam
		if !m.Double() {
			tolerance = 1e-5 // forty steps in binary32, with products in another order
		}
		run := m.Train(t, soap{}, given, plugintest.Matrix(rows, cols), start)
		first := run.Steps(t,
			golden.Array{Shape: []int{3, rows, cols}, Data: gradients.Data[:3*rows*cols]}, 0)
		plugintest.Near(t, "x at rate 0", first, start, 0)
		before := slices.Clone(run.State("basis0"))
		alone := m.Train(t, soap{}, given, plugintest.Matrix(seen, cols), pick(start))
		alone.Steps(t, golden.Array{Shape: []int{3, seen, cols}, Data: few.Data[:3*seen*cols]}, 0)
		for s := 3; s < steps; s++ {
			run.Update(t, gradients.Row(s).Data, 0.01)
			alone.Update(t, few.Row(s).Data, 0.01)
		}
		plugintest.Near(t, "the rows with gradients", pick(run.X()), alone.X(), tolerance)
		want := slices.Clone(start)
		for _, row := range at {
			copy(want[row*cols:][:cols], run.X()[row*cols:][:cols])
		}
		plugintest.Near(t, "the others", run.X(), want, tolerance)
		if slices.Equal(run.State("basis0"), before) {
			t.Error("the basis of the side with zero rows is that of the beginning")
		}
		run.Steps(t, plugintest.Normal(7, 10, rows, cols), 0.01)
		checkOrthonormal(t, run.State("basis0"), rows)
	})
}

// checkOrthonormal allows for one rounding of each element to binary32.
func checkOrthonormal(t *testing.T, basis []float64, n int) {
	t.Helper()
	got := runReference(t, func(_ *program.Builder, in []program.Value) []program.Value {
		return []program.Value{product(in[0], in[0], 0, 0)}
	}, reference.Floats(basis, n, n))[0]
	eye := make([]float64, n*n)
	for i := range n {
		eye[i*n+i] = 1
	}
	plugintest.Near(t, "QᵀQ", got, eye, 5e-7)
}

// TestFirstBasis checks that a non-finite factor leaves the identity in place.
func TestFirstBasis(t *testing.T) {
	bad := reference.Floats([]float64{math.NaN(), 0, 0, 1}, 2, 2)
	good := reference.Floats([]float64{1, 0, 0, 4}, 2, 2)
	eye := reference.Floats([]float64{1, 0, 0, 1}, 2, 2)
	out := runReference(t, func(_ *program.Builder, in []program.Value) []program.Value {
		return []program.Value{eigenvectors(in[0], in[2]), eigenvectors(in[1], in[2]).Abs()}
	}, bad, good, eye)
	plugintest.Near(t, "without a basis", out[0], eye.Floats, 0)
	plugintest.Near(t, "the largest first", out[1], []float64{0, 1, 1, 0}, 1e-15)
}

// TestBasesStayOrthonormal checks bases in binary32 after many refreshes.
func TestBasesStayOrthonormal(t *testing.T) {
	const n, steps = 6, 60
	run := plugintest.CPU(t).Train(t, soap{}, map[string]any{"freq": 1}, plugintest.Matrix(n, 9),
		plugintest.Normal(2, n, 9).Data)
	gradients := plugintest.Normal(3, steps, n, 9)
	run.Steps(t, gradients, 0.01)
	checkOrthonormal(t, run.State("basis0"), n)
}
