package main

import (
	"fmt"
	"math"
	"testing"

	"github.com/cage-qat/cage/host/testing/plugintest"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/reference"
)

// published returns the iteration with its published constants.
func published(steps int) iteration {
	return iteration{steps: steps, eps: 1e-7, factor: 1, a: 3.4445, b: -4.7750, c: 2.0315}
}

// TestSingularValues checks that a well-conditioned matrix (random, with one side clearly longer)
// gets singular values from 0.65 to 1.25, whether wide or tall, alone or in a stack.
func TestSingularValues(t *testing.T) {
	plugintest.Each(t, func(t *testing.T, m plugintest.Bench) {
		for _, shape := range [][]int{{16, 40}, {40, 16}, {3, 16, 40}, {2, 40, 16}, {1, 7}, {7, 1}} {
			o := orthogonalize(t, m, plugintest.Normal(5, shape...), published(5))
			for _, s := range singularValues(t, o, shape) {
				if !(s >= 0.65 && s <= 1.25) {
					t.Errorf("%v: a singular value of %.3f", shape, s)
				}
			}
		}
	})
}

// singularValues returns the singular values of each matrix: the roots of the eigenvalues of XXᵀ or
// XᵀX.
func singularValues(t *testing.T, x []float64, shape []int) []float64 {
	t.Helper()
	return plugintest.Reference().
		Eval(t, func(_ *program.Builder, in []program.Value) []program.Value {
			v := stack{in[0]}
			gram := v.times(v.Value, 1, 1)
			if rows, cols := v.sides(); rows > cols {
				gram = v.times(v.Value, 0, 0)
			}
			return []program.Value{gram.EighValues().Sqrt()}
		}, reference.Floats(x, shape...))[0]
}

// TestScale checks that the norm of the matrix has no effect if it is well above ε, and that the
// factor multiplies the result, after one step as after five.
func TestScale(t *testing.T) {
	plugintest.Each(t, func(t *testing.T, m plugintest.Bench) {
		for _, shape := range [][]int{{4, 6}, {6, 4}} {
			for _, steps := range []int{1, 2, 5} {
				x := plugintest.Normal(6, shape...)
				it := published(steps)
				it.eps = 1e-15
				want := orthogonalize(t, m, x, it)
				x.Data = plugintest.Times(0x1p-20, x.Data)
				it.factor = 3
				// Each of the two runs has errors of some units of 6e-8.
				plugintest.Near(t, fmt.Sprint(shape, steps), orthogonalize(t, m, x, it),
					plugintest.Times(3, want), 2e-6)
			}
		}
	})
}

// TestIteratingTheSquare checks that the iteration for one side clearly longer gives the result of
// the definition, in binary32 too, even with tiny singular values.
func TestIteratingTheSquare(t *testing.T) {
	for name, decay := range map[string]float64{"even": 1, "graded": 0.1, "cliff": 1e-6} {
		x := plugintest.Normal(9, 8, 40)
		for i := range 8 {
			for j := range 40 {
				x.Data[40*i+j] *= math.Pow(decay, float64(i))
			}
		}
		it := published(5)
		if !it.shorter(8, 40) || it.shorter(8, 9) {
			t.Fatal("the wrong way is taken")
		}
		want := byDefinition(x.Data, 8, it)
		plugintest.Near(t, name, orthogonalize(t, plugintest.Reference(), x, it), want, 1e-12)
		// Five steps of products have errors of some units of 6e-8 each, on values below 1.3.
		plugintest.Near(t, name+" in binary32", orthogonalize(t, plugintest.CPU(t), x, it), want, 5e-6)
	}
}

// TestManySteps checks that rounding errors stay those of the definition in many steps, too, for a
// matrix of rank 3, whose other singular values are rounding errors that each step enlarges.
func TestManySteps(t *testing.T) {
	x := plugintest.Normal(9, 8, 40)
	for row := 3; row < 8; row++ {
		for col := range 40 {
			x.Data[40*row+col] = float64(float32(x.Data[40*(row-3)+col] + x.Data[40*(row%3)+col]))
		}
	}
	for _, c := range [][3]float64{{3.4445, -4.7750, 2.0315}, {2, -1.5, 0.5}, {1.5, -0.5, 0}} {
		for _, steps := range []int{10, 30} {
			it := published(steps)
			it.a, it.b, it.c = c[0], c[1], c[2]
			what := fmt.Sprint(steps, " steps with ", c)
			got := orthogonalize(t, plugintest.CPU(t), x, it)
			if steps == 10 {
				plugintest.Near(t, what, got, byDefinition(x.Data, 8, it), 0.02)
			}
			for _, s := range singularValues(t, got, x.Shape) {
				if !(s < 1.25) {
					t.Errorf("%s: a singular value of %g", what, s)
				}
			}
		}
	}
}

// byDefinition iterates X ← aX + (bS + cS²)X with S = XXᵀ.
func byDefinition(u []float64, rows int, it iteration) []float64 {
	cols := len(u) / rows
	x := append([]float64(nil), u...)
	square := 0.0
	for _, v := range x {
		square += v * v
	}
	for i := range x {
		x[i] /= math.Sqrt(square) + it.eps
	}
	for range it.steps {
		s := make([]float64, rows*rows)
		for i := range rows {
			for j := range rows {
				for k := range cols {
					s[i*rows+j] += x[i*cols+k] * x[j*cols+k]
				}
			}
		}
		p := make([]float64, rows*rows)
		for i := range rows {
			for j := range rows {
				p[i*rows+j] = it.b * s[i*rows+j]
				for k := range rows {
					p[i*rows+j] += it.c * s[i*rows+k] * s[k*rows+j]
				}
			}
			p[i*rows+i] += it.a
		}
		next := make([]float64, len(x))
		for i := range rows {
			for j := range cols {
				for k := range rows {
					next[i*cols+j] += p[i*rows+k] * x[k*cols+j]
				}
			}
		}
		x = next
	}
	return x
}

// TestTransposed checks that the transpose of a matrix gives the transposed result.
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
		turn(want, orthogonalize(t, plugintest.Reference(), x, published(steps)))
		plugintest.Near(t, fmt.Sprint(steps),
			orthogonalize(t, plugintest.Reference(), turned, published(steps)), want, 1e-14)
	}
}

// TestLean checks that there are no transpositions, and that only products have the size of the
// matrix; all else works on the square of the shorter side. Each step has three products. If one
// side is clearly longer, each has four, less three in the first and last step together, plus two
// with the matrix.
func TestLean(t *testing.T) {
	for _, c := range []struct {
		shape []int
		want  int
	}{{[]int{12, 16}, 15}, {[]int{16, 12}, 15}, {[]int{4, 16}, 19}, {[]int{16, 4}, 19},
		{[]int{3, 4, 16}, 19}, {[]int{3, 16, 4}, 19}} {
		shape := c.shape
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
			case n.Op == program.OpTranspose, size > 0.75:
				t.Errorf("%v: %s of %v", shape, n.Op, n.Type)
			}
		}
		if products != c.want {
			t.Errorf("%v: %d products, want %d", shape, products, c.want)
		}
	}
}

// TestVariants checks that the variants of momentum differ only by the factor 1 − μ, so that the
// directions agree up to their scales, √max(1, R/C) and 0.2·√max(R, C).
func TestVariants(t *testing.T) {
	for _, shape := range [][]int{{3, 5}, {5, 3}} {
		tensor := plugintest.Matrix(shape...)
		given := map[string]any{"variant": variantOriginal, "eps": 1e-15}
		zero := make([]float64, 15)
		original := plugintest.Reference().Train(t, muon{}, given, tensor, zero)
		matched := plugintest.Reference().Train(t, muon{}, map[string]any{"eps": 1e-15}, tensor, zero)
		gradients := plugintest.Normal(8, append([]int{3}, shape...)...)
		rows, cols := float64(shape[0]), float64(shape[1])
		for i := range 3 {
			original.Update(t, gradients.Row(i).Data, 0.2*math.Sqrt(max(rows, cols)))
			matched.Update(t, gradients.Row(i).Data, math.Sqrt(max(1, rows/cols)))
		}
		plugintest.Near(t, fmt.Sprint(shape), original.X(), matched.X(), 1e-12)
	}
}
