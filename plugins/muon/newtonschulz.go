package main

import (
	"math"

	"github.com/cage-qat/cage/sdk/program"
)

// iteration holds the parameters of the orthogonalization.
type iteration struct {
	steps   int
	a, b, c float64
	eps     float64 // added to the norm that the matrix is divided by
	factor  float64 // multiplies the result
}

// newtonSchulz moves the singular values of u, a matrix or a stack of matrices, close to 1 and
// keeps its singular vectors (Jordan et al. 2024):
//
//	X ← U/(‖U‖_F + ε);  steps times:  S = XXᵀ,  X ← aX + (bS + cS²)X
//
// The result is multiplied by factor. With the published coefficients the singular values do not
// converge to 1, but reach 0.7 to 1.3 in fewer steps. Zeros stay zeros.
//
// Each step is computed as X ← PX with P = cS² + bS + aI (with more rows than columns, as X ← XP
// with S = XᵀX): three products, two of them of square matrices. Scalars are multiplied into P: the
// norm, from ‖U‖² = tr S, in the first step, and the factor in the last. With more rows than
// columns the first step produces Xᵀ, and the last one transposes it back, so that no other product
// needs a transposed operand.
//
// If one side is much longer, and the steps are few, only S is iterated. P commutes with S, so the
// next S is PSP, and X is read only twice: for the first S, and for its product with the product of
// all P.
func newtonSchulz(u program.Value, it iteration) program.Value {
	x := stack{u}
	rows, cols := x.sides()
	tall := rows > cols
	var s program.Value
	if tall {
		s = x.times(x.Value, 0, 0)
	} else {
		s = x.times(x.Value, 1, 1)
	}
	eye := x.identity(min(rows, cols))
	norm := x.trace(s, eye).Sqrt().Shift(it.eps)
	s = s.Div(norm.Square())
	if it.stable() && it.shorter(min(rows, cols), max(rows, cols)) {
		p := it.product(stack{s}, eye, norm)
		if tall {
			return x.times(p, 1, 0)
		}
		return stack{p}.times(x.Value, 1, 0)
	}
	for i := range it.steps {
		first, last := i == 0, i == it.steps-1
		if !first {
			s = x.times(x.Value, 1, 1)
		}
		p := it.polynomial(stack{s}, eye, last)
		if first {
			p = p.Div(norm)
		}
		switch {
		case tall && first && last:
			x = stack{x.times(p, 1, 0)}
		case tall && first:
			x = stack{stack{p}.times(x.Value, 1, 1)}
		case tall && last:
			x = stack{x.times(p, 0, 0)}
		default:
			x = stack{stack{p}.times(x.Value, 1, 0)}
		}
	}
	return x.Value
}

// shorter reports whether iterating only S takes fewer multiplications. In n steps it takes, after
// the first S, 4n − 3 products of square matrices and one product with X; iterating X takes n
// products of square matrices and 2n − 1 products with X.
func (it iteration) shorter(short, long int) bool {
	alone := (4*it.steps-3)*short + long
	return it.steps > 1 && alone < it.steps*(short+2*long)-long
}

// stable reports whether rounding errors stay small if only S is iterated. Each step multiplies the
// eigenvalues of S near zero by a². Iterating S also does that to those that rounding has made
// negative, about −2⁻²⁴, and the iteration diverges when they reach −1; S = XXᵀ has none.
func (it iteration) stable() bool {
	return math.Pow(it.a, 2*float64(it.steps-1))*0x1p-24 < 0.01
}

// product returns the product of the matrices P of all steps, divided by norm. The iteration's
// result is X times this product, or the product times X.
func (it iteration) product(s stack, eye, norm program.Value) program.Value {
	var all program.Value
	for i := range it.steps {
		last := i == it.steps-1
		p := stack{it.polynomial(s, eye, last)}
		if i == 0 {
			all = p.Div(norm)
		} else {
			all = p.times(all, 1, 0)
		}
		if !last {
			s = stack{p.times(s.Value, 1, 0)}
			s = stack{s.times(p.Value, 1, 0)}
		}
	}
	return all
}

// polynomial returns the matrix P of one step, multiplied by factor in the last step.
func (it iteration) polynomial(s stack, eye program.Value, last bool) program.Value {
	a, b, c := it.a, it.b, it.c
	if last {
		a, b, c = a*it.factor, b*it.factor, c*it.factor
	}
	return s.times(s.Value, 1, 0).Scale(c).Add(s.Scale(b)).Add(eye.Scale(a))
}

// stack is a matrix, or several matrices of one shape, stacked along the first axis.
type stack struct{ program.Value }

// sides returns the numbers of rows and columns of a matrix.
func (v stack) sides() (rows, cols int) {
	shape := v.Shape()
	if len(shape) < 2 { // the builder has recorded a mistake
		return 1, 1
	}
	return shape[len(shape)-2], shape[len(shape)-1]
}

// times multiplies each matrix of v by the corresponding one of o, contracting axis i of v with
// axis j of o; an axis is 0 (rows) or 1 (columns).
func (v stack) times(o program.Value, i, j int) program.Value {
	if len(v.Shape()) == 2 {
		return v.Dot(o, [2][]int{{i}, {j}}, [2][]int{})
	}
	return v.Dot(o, [2][]int{{i + 1}, {j + 1}}, [2][]int{{0}, {0}})
}

// identity returns the identity matrix of order n, with a leading axis of length 1 if v is a stack.
func (v stack) identity(n int) program.Value {
	index := program.Type{DType: program.Int, Shape: []int{n, n}}
	b := v.Builder()
	eye := b.Iota(index, 0).Eq(b.Iota(index, 1)).Convert(program.Float)
	if len(v.Shape()) == 2 {
		return eye
	}
	return eye.Reshape(1, n, n)
}

// trace returns the trace of each matrix of s, in a shape that broadcasts to the shape of s.
func (v stack) trace(s, eye program.Value) program.Value {
	s = s.Mul(eye)
	if len(v.Shape()) == 2 {
		return s.ReduceSum(1).ReduceSum(0)
	}
	return s.ReduceSum(2).ReduceSum(1).Reshape(s.Shape()[0], 1, 1)
}
