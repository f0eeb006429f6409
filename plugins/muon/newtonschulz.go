package main

import "github.com/cage-qat/cage/sdk/program"

// iteration says how a matrix is orthogonalized.
type iteration struct {
	steps   int
	a, b, c float64
	// eps is added to the norm that the matrix is divided by.
	eps float64
	// factor multiplies the result.
	factor float64
}

// newtonSchulz brings the singular values of u, a matrix or a stack of matrices,
// near 1 and leaves its singular vectors (Jordan et al. 2024):
//
//	X ← U/(‖U‖_F + ε);  steps times:  S = XXᵀ,  X ← aX + (bS + cS²)X
//
// times factor. The published coefficients do not converge: a singular value ends
// between 0.7 and 1.3, after fewer steps. Zeros stay zeros.
//
// Each step is written as X ← PX with P = cS² + bS + aI, so that it costs three
// products and otherwise touches square matrices only, of the shorter side: with
// more rows than columns it is X ← XP, S = XᵀX. All scalars go into P: the norm, of
// which ‖U‖² = tr S, into that of the first step and the factor into that of the
// last. No operand of a product is transposed for it, save where more rows than
// columns make it necessary: the first step then leaves Xᵀ behind and the last
// turns it back.
//
// Of a matrix with one side clearly longer, only S is iterated: all P commute with S, so
// that S ← PSP, and X is read twice, for the first S and for the product with all P.
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
	if it.shorter(min(rows, cols), max(rows, cols)) {
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

// shorter reports whether iterating S alone takes fewer multiplications: after the first
// S, four products of short matrices for a step, less those that are not needed in the
// first and in the last one, and one with X; instead of one and two, or one in the first
// step.
func (it iteration) shorter(short, long int) bool {
	alone := (4*it.steps-3)*short + long
	return it.steps > 1 && alone < it.steps*(short+2*long)-long
}

// product is that of the P of all steps, divided by norm: X·product, or product·X, is
// the result.
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

// polynomial is P of a step.
func (it iteration) polynomial(s stack, eye program.Value, last bool) program.Value {
	a, b, c := it.a, it.b, it.c
	if last {
		a, b, c = a*it.factor, b*it.factor, c*it.factor
	}
	return s.times(s.Value, 1, 0).Scale(c).Add(s.Scale(b)).Add(eye.Scale(a))
}

// stack is a matrix, or several of one shape along a first axis.
type stack struct{ program.Value }

// sides are the rows and columns of a matrix.
func (v stack) sides() (rows, cols int) {
	shape := v.Shape()
	if len(shape) < 2 { // a mistake made this value: the builder knows it
		return 1, 1
	}
	return shape[len(shape)-2], shape[len(shape)-1]
}

// times multiplies each matrix with its counterpart, summing over axis i of v's and
// axis j of o's, which are 0 (rows) or 1 (columns).
func (v stack) times(o program.Value, i, j int) program.Value {
	if len(v.Shape()) == 2 {
		return v.Dot(o, [2][]int{{i}, {j}}, [2][]int{})
	}
	return v.Dot(o, [2][]int{{i + 1}, {j + 1}}, [2][]int{{0}, {0}})
}

// identity is the unit matrix of order n, with a first axis when v has one.
func (v stack) identity(n int) program.Value {
	index := program.Type{DType: program.Int, Shape: []int{n, n}}
	b := v.Builder()
	eye := b.Iota(index, 0).Eq(b.Iota(index, 1)).Convert(program.Float)
	if len(v.Shape()) == 2 {
		return eye
	}
	return eye.Reshape(1, n, n)
}

// trace sums the diagonal of each matrix s; the result goes with s.
func (v stack) trace(s, eye program.Value) program.Value {
	s = s.Mul(eye)
	if len(v.Shape()) == 2 {
		return s.Sum(1).Sum(0)
	}
	return s.Sum(2).Sum(1).Reshape(s.Shape()[0], 1, 1)
}
