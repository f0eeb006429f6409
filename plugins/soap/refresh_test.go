package main

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/cage-qat/cage/internal/plugintest"
	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/reference"
)

// TestDue: the first basis comes before the second update, and a turn of the bases
// after each freq-th update that counts, which the first does not.
func TestDue(t *testing.T) {
	for freq, want := range map[int][]int{1: {2, 3, 4, 5, 6, 7, 8, 9, 10}, 2: {2, 4, 6, 8, 10}, 3: {2, 5, 8}, 10: {2}} {
		p := build(t, map[string]any{"freq": freq}, matrix(2, 3))
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

// oracle runs what body makes of the matrices x.
func oracle(t *testing.T, body func(b *program.Builder, in []program.Value) []program.Value, x ...reference.Tensor) [][]float64 {
	t.Helper()
	b := program.NewBuilder("test")
	inputs := map[string]reference.Tensor{}
	var args []program.Value
	for i, v := range x {
		inputs[fmt.Sprint("x", i)] = v
		args = append(args, b.Input(fmt.Sprint("x", i), v.Type))
	}
	results := body(b, args)
	for i, v := range results {
		b.Output(fmt.Sprint("y", i), v)
	}
	p, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	out := plugintest.Oracle().Run(t, p, inputs)
	var all [][]float64
	for i := range results {
		all = append(all, out[fmt.Sprint("y", i)].Floats)
	}
	return all
}

func TestDescending(t *testing.T) {
	for _, c := range []struct{ d, want []float64 }{
		{[]float64{1, 3, 2}, []float64{3, 2, 1}},
		{[]float64{5}, []float64{5}},
		{[]float64{0, -1, math.Inf(1), 7, -2}, []float64{math.Inf(1), 7, 0, -1, -2}},
	} {
		d := reference.Floats(c.d, len(c.d))
		order := oracle(t, func(_ *program.Builder, in []program.Value) []program.Value {
			return []program.Value{descending(in[0])}
		}, d)[0]
		for col, want := range c.want {
			for row, v := range c.d {
				if got := order[row*len(c.d)+col]; (got == 1) != (v == want) || got != 0 && got != 1 {
					t.Errorf("%v: row %d, column %d of the permutation is %v", c.d, row, col, got)
				}
			}
		}
	}
}

// TestDescendingTies: equal elements stay in their order.
func TestDescendingTies(t *testing.T) {
	order := oracle(t, func(_ *program.Builder, in []program.Value) []program.Value {
		return []program.Value{descending(in[0])}
	}, reference.Floats([]float64{2, 1, 2, 1}, 4))[0]
	if want := []float64{1, 0, 0, 0, 0, 0, 1, 0, 0, 1, 0, 0, 0, 0, 0, 1}; !slices.Equal(order, want) {
		t.Errorf("got %v, want %v", order, want)
	}
}

// TestIterate: power iteration from any basis comes to the eigenvectors, sorted, and
// turn goes from the old basis to the new one.
func TestIterate(t *testing.T) {
	// The eigenvalues of Q·diag(d)·Qᵀ are known, Q being any orthonormal matrix.
	const n = 5
	d := []float64{16, 8, 4, 2, 1}
	out := oracle(t, func(b *program.Builder, in []program.Value) []program.Value {
		truth := in[0].QR()
		f := product(truth.Mul(b.Table(d, 1, n)), truth, 1, 1)
		q := identity(b, n)
		turned := identity(b, n)
		for range 80 {
			next, _, turn := iterate(f, q)
			turned = product(turned, turn, 1, 0)
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

// TestDeficient: when the columns of the product are not independent, basis and
// moments of that side stay, and the other side goes on.
func TestDeficient(t *testing.T) {
	for name, factor := range map[string][]float64{
		"zero":     {0, 0, 0, 0},
		"zero row": {1, 0, 0, 0},
		"rank 1":   {1, 2, 2, 4},
		"NaN":      {1, math.NaN(), math.NaN(), 1},
		"infinite": {math.Inf(1), 0, 0, 1},
	} {
		t.Run(name, func(t *testing.T) {
			p := build(t, nil, matrix(2, 3))
			state := map[string]reference.Tensor{sdk.InputStep: reference.Float(12)}
			for i, s := range p.State {
				state[sdk.StatePrefix+s.Name] = normal(uint64(i), s.Shape...)
			}
			c, s := 0.6, 0.8
			basis0 := []float64{c, -s, s, c}
			eye := []float64{1, 0, 0, 0, 1, 0, 0, 0, 1}
			state["state.basis0"] = reference.Floats(basis0, 2, 2)
			state["state.factor0"] = reference.Floats(factor, 2, 2)
			state["state.basis1"] = reference.Floats(eye, 3, 3)
			state["state.factor1"] = reference.Floats([]float64{1, 0, 0, 0, 3, 0, 0, 0, 2}, 3, 3)
			out := plugintest.Oracle().Run(t, p.Refresh, state)
			plugintest.Near(t, "basis0", out["state.basis0"].Floats, basis0, 0)
			// The other side sorts its axes: 1, 2, 0.
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

// TestFirstBasis: a factor that is not finite leaves the identity in place.
func TestFirstBasis(t *testing.T) {
	bad := reference.Floats([]float64{math.NaN(), 0, 0, 1}, 2, 2)
	good := reference.Floats([]float64{1, 0, 0, 4}, 2, 2)
	eye := reference.Floats([]float64{1, 0, 0, 1}, 2, 2)
	out := oracle(t, func(_ *program.Builder, in []program.Value) []program.Value {
		return []program.Value{eigenvectors(in[0], in[2]), eigenvectors(in[1], in[2]).Abs()}
	}, bad, good, eye)
	plugintest.Near(t, "without a basis", out[0], eye.Floats, 0)
	plugintest.Near(t, "the largest first", out[1], []float64{0, 1, 1, 0}, 1e-15)
}

// TestBasesStayOrthonormal: kept in binary32 and turned again and again.
func TestBasesStayOrthonormal(t *testing.T) {
	const n, steps = 6, 60
	run := plugintest.CPU().Train(t, soap{}, map[string]any{"freq": 1}, matrix(n, 9), plugintest.Normal(2, n, 9).Data)
	gradients := plugintest.Normal(3, steps, n, 9)
	for s := range steps {
		run.Update(t, gradients.Row(s).Data, 0.01)
	}
	got := oracle(t, func(_ *program.Builder, in []program.Value) []program.Value {
		return []program.Value{product(in[0], in[0], 0, 0)}
	}, reference.Floats(run.State("basis0"), n, n))[0]
	eye := make([]float64, n*n)
	for i := range n {
		eye[i*n+i] = 1
	}
	plugintest.Near(t, "QᵀQ", got, eye, 5e-7) // each element of Q is rounded to binary32 once
}
