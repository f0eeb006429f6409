package randprog

import (
	"math"
	"slices"

	"github.com/cage-qat/cage/sdk/program"
)

var productMoves = []updateMove{
	(*updates).matrices, (*updates).matrices, (*updates).matrices, (*updates).polynomial,
	(*updates).polynomial,
	(*updates).normalized, (*updates).folded, (*updates).reshaped,
}

// generalMoves are the moves of [New] that only move elements, reductions and products over any
// axes, and conversions.
var generalMoves = []updateMove{
	moved(transpose, program.OpTranspose), moved(reshape, program.OpReshape),
	moved(broadcast, program.OpBroadcast),
	moved(slice, program.OpSlice), moved(concatenate, program.OpConcatenate),
	(*updates).anyFold, (*updates).anyFold, (*updates).anyProduct, (*updates).converted,
	(*updates).spread,
}

func moved(m move, op program.Op) updateMove {
	return func(u *updates) value { return m(u.generator, op) }
}

// isMatrices accepts matrices and stacks of matrices.
func isMatrices(v value) bool { return v.Type().Rank() == 2 || v.Type().Rank() == 3 }

// times contracts axis i of x with axis j of y.
func (u *updates) times(x, y value, i, j int, batch [2][]int) value {
	terms := x.Shape()[i]
	if u.Exact && !(x.exact() && y.exact() && fits(x.mag*y.mag*float64(terms), x.frac+y.frac)) {
		same := x.Value == y.Value
		x = u.addable(x, 1<<14, 16, 4)
		if y = u.addable(y, 1<<14, 16, 4); same {
			y = x
		}
	}
	size := x.Type().Size() / int64(terms) * y.Type().Size() / int64(terms)
	if size > int64(u.Elements) {
		u.giveUp()
	}
	out := value{x.Dot(y.Value, [2][]int{{i}, {j}}, batch), x.mag * y.mag * float64(terms), rounded}
	switch {
	case u.Exact:
		out.frac = x.frac + y.frac
	case u.comparable(x) && u.comparable(y): // inputs are random, so that terms cancel
		out.mag = x.mag * y.mag * math.Sqrt(float64(terms))
	}
	return out
}

// matrices multiplies two matrices, or two stacks of matrices pairwise, over any of their axes.
func (u *updates) matrices() value {
	x := u.draw(isFloat, isMatrices)
	batch, first := u.batch(x)
	i := first + u.rng.IntN(2)
	pairs := func(y value, j int) bool { return y.Shape()[j] == x.Shape()[i] }
	y := u.draw(isFloat, func(y value) bool {
		return y.Type().Rank() == first+2 && (first == 0 || y.Shape()[0] == x.Shape()[0]) &&
			(pairs(y, first) || pairs(y, first+1))
	})
	j := first + u.rng.IntN(2)
	if !pairs(y, j) {
		j = 2*first + 1 - j // the other one
	}
	return u.defined(u.times(x, y, i, j, batch))
}

// defined makes the zeros of a product positive, because their sign is undefined.
func (u *updates) defined(v value) value {
	v.Value = u.positive(v.Value)
	return v
}

// batch returns the batch axes for a product of x, a matrix or a stack of matrices, and the first
// matrix axis.
func (u *updates) batch(x value) (batch [2][]int, first int) {
	if x.Type().Rank() == 3 {
		return [2][]int{{0}, {0}}, 1
	}
	return [2][]int{}, 0
}

// polynomial generates a Newton–Schulz step: a polynomial of a matrix times its transpose. It is
// symmetric, so executors may compute only half of it. Sometimes polynomial generates a similar
// expression that is not symmetric.
func (u *updates) polynomial() value {
	x := u.draw(isFloat, isMatrices)
	batch, first := u.batch(x)
	rank, n := x.Type().Rank(), x.Shape()[first]
	square := []int{1, n, n}[1-first:]
	s := u.gram(x, batch)
	p := value{s.Scale(2).Add(compareIndices(u.b, n, program.OpEq).Reshape(square...).Scale(-3)),
		2*s.mag + 3, s.frac}
	switch u.rng.IntN(6) {
	case 0:
		p = value{s.Shift(2), s.mag + 2, s.frac}
	case 1: // of a constant that is not the identity
		p = value{s.Sub(compareIndices(u.b, n, program.OpGe).Reshape(square...)), s.mag + 1, s.frac}
	case 2: // elementwise
		if y, ok := u.find(isFloat,
			func(v value) bool { return slices.Equal(v.Shape(), s.Shape()) }); ok {
			p = value{y.Mul(s.Value), s.mag * y.mag, joint(s, y, s.frac+y.frac)}
		}
	case 3: // of another symmetric matrix
		if y, ok := u.find(isFloat, hasAxes,
			func(v value) bool {
				return slices.Equal(v.Shape()[:v.Type().Rank()-1],
					x.Shape()[:rank-1])
			}); ok {
			if y, ok = try(func() value { return u.gram(y, batch) }); ok {
				p = y
			}
		}
	}
	if u.rng.IntN(2) == 0 {
		x = s
	}
	return u.defined(u.times(p, x, rank-1, rank-2, batch))
}

// gram returns each matrix times its transpose. In exact programs, it first replaces elements by
// their signs, so that polynomials of the product are exact.
func (u *updates) gram(x value, batch [2][]int) value {
	if u.Exact {
		x = value{u.positive(x.Sign()), 1, 0}
	}
	last := x.Type().Rank() - 1
	s := u.times(x, x, last, last, batch)
	if !u.Exact {
		s.Value, s.mag = s.Scale(1/float64(x.Shape()[last])), 1
	}
	return s
}

// normalized divides each matrix of a stack by its own scalar. The stack may be made from a newly
// computed matrix.
func (u *updates) normalized() value {
	x := u.draw(isFloat, isMatrices,
		func(v value) bool { return v.Type().Rank() == 3 || v.Shape()[0] == u.parts*u.rows })
	if x.Type().Rank() == 2 {
		x = bits(x.Scale(0.5).Reshape(u.parts, u.rows, x.Shape()[1]), x.mag, joint(x, x, x.frac+1))
	}
	sum := u.addable(x, 1<<14, 1, 0).Abs().ReduceSum(2).ReduceSum(1).Reshape(x.Shape()[0], 1, 1)
	return value{x.Div(u.positive(sum).Shift(1)), x.mag, rounded}
}

// anyFold reduces a random set of axes.
func (u *updates) anyFold() value {
	x := u.draw(isFloat, hasAxes)
	axes := u.rng.Perm(x.Type().Rank())[:1+u.rng.IntN(x.Type().Rank())]
	slices.Sort(axes)
	return u.fold(x, axes)
}

// anyProduct multiplies values over any axes. In exact programs, it gives up if the product is not
// exact.
func (u *updates) anyProduct() value {
	out := dot(u.generator, program.OpDot)
	if u.Exact && !out.exact() {
		u.giveUp()
	}
	return u.defined(out)
}

// converted converts a bool to a number, or truncates a number to an integer.
func (u *updates) converted() value {
	if p, ok := u.find(isBool); ok && u.rng.IntN(2) == 0 {
		return value{p.Convert(program.Float), 1, 0}
	}
	x := u.finite(u.draw(isFloat, u.comparable))
	if u.Exact && !x.exact() { // of any size
		x.mag = 1000
	}
	return value{x.Clip(-1000, 1000).Convert(program.Int).Convert(program.Float), min(x.mag, 1000), 0}
}

func (u *updates) spread() value {
	x := u.draw(isFloat, isScalar)
	x.Value = x.Broadcast(u.draw(isFloat, hasAxes).Shape(), nil)
	return x
}
