package randprog

import (
	"math"
	"slices"

	"github.com/cage-qat/cage/sdk/program"
)

var productMoves = []updateMove{
	(*updates).matrices, (*updates).matrices, (*updates).stacked, (*updates).polynomial, (*updates).turned,
	(*updates).normalized, (*updates).folded, (*updates).reshaped,
}

// generalMoves are those of [New] that move elements, with folds and products over any
// axes.
var generalMoves = []updateMove{
	moved(transpose, program.OpTranspose), moved(reshape, program.OpReshape), moved(broadcast, program.OpBroadcast),
	moved(slice, program.OpSlice), moved(concatenate, program.OpConcatenate),
	(*updates).anyFold, (*updates).anyFold, (*updates).anyProduct,
}

func moved(m move, op program.Op) updateMove {
	return func(u *updates) (value, bool) { return m(u.generator, op) }
}

func isMatrix(v value) bool { return v.Type().Rank() == 2 }
func isStack(v value) bool  { return v.Type().Rank() == 3 }

// times multiplies two values over the given axes, with so many terms.
func (u *updates) times(x, y value, i, j int, batch [2][]int) (value, bool) {
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
		return x, false
	}
	out := value{x.Dot(y.Value, [2][]int{{i}, {j}}, batch), x.mag * y.mag * float64(terms), rounded}
	switch {
	case u.Exact:
		out.frac = x.frac + y.frac
	case u.comparable(x) && u.comparable(y): // inputs are random, so that terms cancel
		out.mag = x.mag * y.mag * math.Sqrt(float64(terms))
	}
	return out, true
}

// kept is a product as it goes into the pool.
func (u *updates) kept(out value, ok bool) (value, bool) {
	if !ok {
		return out, false
	}
	out.Value = u.positive(out.Value)
	u.product = out
	return out, true
}

// matrices multiplies two matrices over any of their axes.
func (u *updates) matrices() (value, bool) {
	x, ok := u.draw(isFloat, isMatrix)
	if !ok {
		return x, false
	}
	i := u.rng.IntN(2)
	y, ok := u.draw(isFloat, isMatrix, func(y value) bool { return slices.Contains(y.Shape(), x.Shape()[i]) })
	if !ok {
		return y, false
	}
	j := slices.Index(y.Shape(), x.Shape()[i])
	if y.Shape()[0] == y.Shape()[1] {
		j = u.rng.IntN(2)
	}
	return u.kept(u.times(x, y, i, j, [2][]int{}))
}

// stacked multiplies each matrix of a stack with its counterpart.
func (u *updates) stacked() (value, bool) {
	x, ok := u.draw(isFloat, isStack)
	if !ok {
		return x, false
	}
	i := 1 + u.rng.IntN(2)
	y, ok := u.draw(isFloat, isStack, func(y value) bool {
		return y.Shape()[0] == x.Shape()[0] && slices.Contains(y.Shape()[1:], x.Shape()[i])
	})
	if !ok {
		return y, false
	}
	j := 1 + slices.Index(y.Shape()[1:], x.Shape()[i])
	return u.kept(u.times(x, y, i, j, [2][]int{{0}, {0}}))
}

// polynomial is a Newton–Schulz step: polynomials of a matrix times its transpose,
// which are symmetric, and which executors may compute in half; or what looks like one
// and is none.
func (u *updates) polynomial() (value, bool) {
	x, ok := u.draw(isFloat, func(v value) bool { return isMatrix(v) || isStack(v) })
	if !ok {
		return x, false
	}
	rank := x.Type().Rank()
	batch, n := [2][]int{}, x.Shape()[rank-2]
	eye := identity(u.b, n)
	if rank == 3 {
		batch, eye = [2][]int{{0}, {0}}, eye.Reshape(1, n, n)
	}
	s, ok := u.gram(x, batch)
	if !ok {
		return s, false
	}
	p := value{s.Scale(2).Add(eye.Scale(-3)), 2*s.mag + 3, s.frac}
	switch u.rng.IntN(6) {
	case 0:
		p = value{s.Shift(2), s.mag + 2, s.frac}
	case 1: // of a constant that is no identity
		p = value{s.Sub(triangle(u.b, n).Reshape(eye.Shape()...)), s.mag + 1, s.frac}
	case 2: // element by element
		if y, ok := u.draw(isFloat, func(v value) bool { return slices.Equal(v.Shape(), s.Shape()) }); ok {
			p = value{y.Mul(s.Value), s.mag * y.mag, joint(s, y, s.frac+y.frac)}
		}
	case 3: // of another matrix, which is symmetric too
		if y, ok := u.draw(isFloat, hasAxes, func(v value) bool { return slices.Equal(v.Shape()[:v.Type().Rank()-1], x.Shape()[:rank-1]) }); ok {
			if y, ok = u.gram(y, batch); ok {
				p = y
			}
		}
	}
	if u.rng.IntN(2) == 0 {
		return u.kept(u.times(p, s, rank-1, rank-2, batch))
	}
	return u.kept(u.times(p, x, rank-1, rank-2, batch))
}

// gram is a matrix, or each of a stack, times its transpose; in exact programs that of
// the signs, so that polynomials of it can be multiplied exactly.
func (u *updates) gram(x value, batch [2][]int) (value, bool) {
	if u.Exact {
		x = value{u.positive(x.Sign()), 1, 0}
	}
	last := x.Type().Rank() - 1
	s, ok := u.times(x, x, last, last, batch)
	if ok && !u.Exact {
		s.Value, s.mag = s.Scale(1/float64(x.Shape()[last])), 1
	}
	return s, ok
}

func identity(b *program.Builder, n int) program.Value {
	index := program.Type{DType: program.Int, Shape: []int{n, n}}
	return b.Iota(index, 0).Eq(b.Iota(index, 1)).Convert(program.Float)
}

// triangle has ones on and below the diagonal.
func triangle(b *program.Builder, n int) program.Value {
	index := program.Type{DType: program.Int, Shape: []int{n, n}}
	return b.Iota(index, 0).Ge(b.Iota(index, 1)).Convert(program.Float)
}

// turned transposes a matrix.
func (u *updates) turned() (value, bool) {
	x, ok := u.draw(isFloat, isMatrix)
	if !ok {
		return x, false
	}
	x.Value = x.Transpose(1, 0)
	return x, true
}

// normalized divides each matrix of a stack by a number of its own. The stack may be a
// matrix that is computed just before.
func (u *updates) normalized() (value, bool) {
	x, ok := u.draw(isFloat, func(v value) bool { return isStack(v) || isMatrix(v) && v.Shape()[0] == u.parts*u.rows })
	if !ok {
		return x, false
	}
	if isMatrix(x) {
		x = bits(x.Scale(0.5).Reshape(u.parts, u.rows, x.Shape()[1]), x.mag, joint(x, x, x.frac+1))
	}
	sum := u.addable(x, 1<<14, 1, 0).Abs().Sum(2).Sum(1).Reshape(x.Shape()[0], 1, 1)
	return value{x.Div(u.positive(sum).Shift(1)), x.mag, rounded}, true
}

// anyFold folds some axes.
func (u *updates) anyFold() (value, bool) {
	x, ok := u.draw(isFloat, hasAxes)
	if !ok {
		return x, false
	}
	axes := u.rng.Perm(x.Type().Rank())[:1+u.rng.IntN(x.Type().Rank())]
	slices.Sort(axes)
	switch u.rng.IntN(3) {
	case 0:
		x.Value = u.positive(x.ReduceMax(axes...))
	case 1:
		x.Value = u.positive(x.ReduceMin(axes...))
	default:
		n := int(x.Type().Size())
		x = u.addable(x, n, 1, 0)
		x.Value, x.mag = u.positive(x.Sum(axes...)), x.mag*float64(n)
	}
	return x, true
}

// anyProduct multiplies over any axes what can be multiplied exactly.
func (u *updates) anyProduct() (value, bool) {
	out, ok := dot(u.generator, program.OpDot)
	if !ok || u.Exact && !out.exact() {
		return out, false
	}
	out.Value = u.positive(out.Value)
	return out, true
}
