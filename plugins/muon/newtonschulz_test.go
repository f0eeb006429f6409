package main

import (
	"fmt"
	"math"
	"testing"

	"github.com/cage-qat/cage/internal/plugintest"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/reference"
)

// published is the iteration with its published constants.
func published(steps int) iteration {
	return iteration{steps: steps, eps: 1e-7, factor: 1, a: 3.4445, b: -4.7750, c: 2.0315}
}

// TestSingularValues: a well-conditioned matrix (random, with one side clearly longer)
// comes out with singular values from 0.65 to 1.25, wide or tall, alone or in a stack.
func TestSingularValues(t *testing.T) {
	plugintest.Each(t, func(t *testing.T, m plugintest.Machine) {
		for _, shape := range [][]int{{16, 40}, {40, 16}, {3, 16, 40}, {2, 40, 16}, {1, 7}, {7, 1}} {
			o := orthogonalize(t, m, plugintest.Normal(5, shape...), published(5))
			for _, s := range singularValues(t, o, shape) {
				if s < 0.65 || s > 1.25 {
					t.Errorf("%v: a singular value of %.3f", shape, s)
				}
			}
		}
	})
}

// singularValues of each matrix, as roots of the eigenvalues of XXᵀ or XᵀX.
func singularValues(t *testing.T, x []float64, shape []int) []float64 {
	t.Helper()
	b := program.NewBuilder("singular-values")
	v := stack{b.Input("x", program.FloatType(shape...))}
	gram := v.times(v.Value, 1, 1)
	if rows, cols := v.sides(); rows > cols {
		gram = v.times(v.Value, 0, 0)
	}
	b.Output("w", gram.EighValues().Sqrt())
	p, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	return plugintest.Oracle().Run(t, p, map[string]reference.Tensor{"x": reference.Floats(x, shape...)})["w"].Floats
}

// TestScale: the size of the matrix does not matter as long as its norm is well above
// ε, and the factor multiplies the result, after one step as after five.
func TestScale(t *testing.T) {
	plugintest.Each(t, func(t *testing.T, m plugintest.Machine) {
		for _, shape := range [][]int{{4, 6}, {6, 4}} {
			for _, steps := range []int{1, 2, 5} {
				x := plugintest.Normal(6, shape...)
				it := published(steps)
				it.eps = 1e-15
				want := orthogonalize(t, m, x, it)
				x.Data = plugintest.Times(0x1p-20, x.Data)
				it.factor = 3
				// Two runs, each off by some units of 6e-8.
				plugintest.Near(t, fmt.Sprint(shape, steps), orthogonalize(t, m, x, it), plugintest.Times(3, want), 2e-6)
			}
		}
	})
}

// TestTransposed: a matrix and its transpose are treated alike.
func TestTransposed(t *testing.T) {
	x := plugintest.Normal(7, 3, 8)
	turned := plugintest.Normal(7, 8, 3)
	turn := func(to, from []float64) {
		for i := range 3 {
			for j := range 8 {
				to[3*j+i] = from[8*i+j]
			}
		}
	}
	turn(turned.Data, x.Data)
	for _, steps := range []int{1, 2, 3, 5} {
		want := make([]float64, 24)
		turn(want, orthogonalize(t, plugintest.Oracle(), x, published(steps)))
		plugintest.Near(t, fmt.Sprint(steps), orthogonalize(t, plugintest.Oracle(), turned, published(steps)), want, 1e-14)
	}
}

// TestLean: three products for each step, no transposition, and outside of products
// nothing of the size of the matrix: what else there is works on the square of the
// shorter side.
func TestLean(t *testing.T) {
	for _, shape := range [][]int{{4, 16}, {16, 4}, {3, 4, 16}, {3, 16, 4}} {
		b := program.NewBuilder("newton-schulz")
		b.Output("o", newtonSchulz(b.Input("g", program.FloatType(shape...)), published(5)))
		p, err := b.Build()
		if err != nil {
			t.Fatal(err)
		}
		products := 0
		for _, n := range p.Nodes {
			size := float64(n.Type.Size()) / float64(p.Inputs[0].Type.Size())
			switch {
			case n.Op == program.OpDot:
				products++
			case n.Op == program.OpTranspose, size > 0.25:
				t.Errorf("%v: %s of %v", shape, n.Op, n.Type)
			}
		}
		if products != 15 {
			t.Errorf("%v: %d products", shape, products)
		}
	}
}

// TestVariants: the two ways of writing momentum differ by the factor 1 − μ only, so
// that the directions agree up to their scales, √max(1, R/C) and 0.2·√max(R, C).
func TestVariants(t *testing.T) {
	for _, shape := range [][]int{{3, 5}, {5, 3}} {
		tensor := matrix("w", shape...)
		given := map[string]any{"variant": variantOriginal, "eps": 1e-15}
		zero := make([]float64, 15)
		original := plugintest.Oracle().Train(t, muon{}, given, tensor, zero)
		matched := plugintest.Oracle().Train(t, muon{}, map[string]any{"eps": 1e-15}, tensor, zero)
		gradients := plugintest.Normal(8, append([]int{3}, shape...)...)
		rows, cols := float64(shape[0]), float64(shape[1])
		for i := range 3 {
			original.Update(t, gradients.Row(i).Data, 0.2*math.Sqrt(max(rows, cols)))
			matched.Update(t, gradients.Row(i).Data, math.Sqrt(max(1, rows/cols)))
		}
		plugintest.Near(t, fmt.Sprint(shape), original.X(), matched.X(), 1e-12)
	}
}
