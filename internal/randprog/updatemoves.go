package randprog

import (
	"math"
	"slices"

	"github.com/cage-qat/cage/sdk/program"
)

// updateMove writes one operation, or a few; it reports false when the pool has no
// operands that suit, or the result could not be compared.
type updateMove func(u *updates) (value, bool)

var elementwiseMoves = []updateMove{
	(*updates).binary2, (*updates).binary2, (*updates).binary2, (*updates).decayed, (*updates).unary1, (*updates).unary1,
	(*updates).chosen, (*updates).truth, (*updates).folded, (*updates).folded, (*updates).clipped, (*updates).rotated, (*updates).reshaped,
}

// floatOf draws a float.
func (u *updates) floatOf() (value, bool) { return u.draw(isFloat) }

// beside draws a float that stands beside x in an elementwise operation without making
// the result larger than both, in general programs by repeating either.
func (u *updates) beside(x value) value {
	y, ok := u.draw(isFloat, func(y value) bool {
		a, b := x.Type(), y.Type()
		one := len(a.Shape) == 0 || len(b.Shape) == 0 || len(a.Shape) == len(b.Shape) && (a.Size() == 1 || b.Size() == 1)
		return one || slices.Equal(a.Shape, b.Shape) || u.Kind == General && u.goesWith(x)(y)
	})
	if !ok {
		return x
	}
	return y
}

// bits is a value that is correctly rounded, on a grid or not.
func bits(v program.Value, mag float64, frac int) value {
	if frac != rounded && !fits(mag, frac) {
		frac = rounded
	}
	return value{v, mag, frac}
}

// positive gives zeros the positive sign, where it is not defined.
func (u *updates) positive(v program.Value) program.Value { return v.Add(u.b.Const(0)) }

// joint is the grid of what is made of two values, if both are on one.
func joint(x, y value, frac int) int {
	if !x.exact() || !y.exact() {
		return rounded
	}
	return frac
}

func (u *updates) binary2() (value, bool) {
	x, ok := u.floatOf()
	if !ok {
		return x, false
	}
	y := u.beside(x)
	finest := max(x.frac, y.frac)
	switch u.rng.IntN(7) {
	case 0:
		return bits(x.Add(y.Value), x.mag+y.mag, joint(x, y, finest)), true
	case 1:
		return bits(x.Sub(y.Value), x.mag+y.mag, joint(x, y, finest)), true
	case 2, 3:
		return bits(x.Mul(y.Value), x.mag*y.mag, joint(x, y, x.frac+y.frac)), true
	case 4:
		return bits(u.positive(x.Max(y.Value)), max(x.mag, y.mag), joint(x, y, finest)), true
	case 5:
		return bits(u.positive(x.Min(y.Value)), max(x.mag, y.mag), joint(x, y, finest)), true
	}
	if !u.Exact {
		return value{x.Div(y.Abs().Shift(0.5)), x.mag, rounded}, true
	}
	return value{x.Div(y.Value), 1, rounded}, true
}

// decayed is what executors fuse: a running mean of a value or of its square.
func (u *updates) decayed() (value, bool) {
	x, ok := u.floatOf()
	if !ok {
		return x, false
	}
	y := u.beside(x)
	if u.rng.IntN(2) == 0 {
		return value{x.Scale(0.9).Add(y.Scale(0.1)), x.mag + y.mag, rounded}, true
	}
	return value{x.Scale(0.95).Add(y.Square().Scale(0.05)), x.mag + y.mag*y.mag, rounded}, true
}

func (u *updates) unary1() (value, bool) {
	x, ok := u.floatOf()
	if !ok {
		return x, false
	}
	abs := u.positive(x.Abs())
	if !u.Exact {
		switch u.rng.IntN(5) {
		case 0:
			return value{x.Neg(), x.mag, rounded}, true
		case 1:
			return value{abs.Shift(0.5).Sqrt(), 1, rounded}, true
		case 2:
			return value{abs.Log1p(), 1, rounded}, true
		case 3:
			return value{abs.Shift(0.5).Pow(x.Max(u.b.Const(-1)).Min(u.b.Const(1))), 1, rounded}, true
		}
		return value{x.Max(u.b.Const(-2)).Min(u.b.Const(2)).Expm1(), 2, rounded}, true
	}
	switch u.rng.IntN(6) {
	case 0:
		return bits(x.Neg(), x.mag, x.frac), true
	case 1:
		return bits(abs, x.mag, x.frac), true
	case 2:
		return bits(u.positive(x.Sign()), 1, 0), true
	case 3:
		return value{abs.Sqrt().Scale(3).Shift(1e-8), 1, rounded}, true
	case 4:
		return bits(u.positive(x.Floor()), x.mag+1, min(x.frac, 0)), true
	}
	return bits(u.positive(x.Round()), x.mag+1, min(x.frac, 0)), true
}

// chosen selects by a number or by elements; in smooth programs the condition is of
// inputs, which have no errors.
func (u *updates) chosen() (value, bool) {
	cond, ok := u.draw(isBool)
	if !ok {
		return cond, false
	}
	fits := func(y value) bool {
		return cond.Type().Size() == 1 && len(cond.Shape()) == 0 || slices.Equal(cond.Shape(), y.Shape())
	}
	x, ok := u.draw(isFloat, fits)
	if !ok {
		return x, false
	}
	y, ok := u.draw(isFloat, func(y value) bool { return len(y.Shape()) == 0 || slices.Equal(x.Shape(), y.Shape()) })
	if !ok {
		return y, false
	}
	return bits(cond.Select(x.Value, y.Value), max(x.mag, y.mag), joint(x, y, max(x.frac, y.frac))), true
}

// truth is a comparison, or what is made of others.
func (u *updates) truth() (value, bool) {
	if p, ok := u.draw(isBool); ok && u.rng.IntN(3) == 0 {
		q, _ := u.draw(isBool, func(q value) bool { return slices.Equal(p.Shape(), q.Shape()) })
		op := []program.Op{program.OpAnd, program.OpOr, program.OpXor, program.OpNe, program.OpNot}[u.rng.IntN(5)]
		if op == program.OpNot {
			return value{Value: p.Not()}, true
		}
		return value{Value: u.binary(op, p, q)}, true
	}
	x, ok := u.draw(isFloat, u.comparable)
	if !ok {
		return x, false
	}
	if u.rng.IntN(4) == 0 {
		return value{Value: x.IsFinite()}, true
	}
	y, ok := u.draw(isFloat, u.comparable, func(y value) bool { return len(y.Shape()) == 0 || slices.Equal(x.Shape(), y.Shape()) })
	if !ok {
		return y, false
	}
	ops := []program.Op{program.OpEq, program.OpNe, program.OpLt, program.OpLe, program.OpGt, program.OpGe}
	return value{Value: u.binary(ops[u.rng.IntN(len(ops))], x, y)}, true
}

// comparable accepts what has no rounding errors.
func (u *updates) comparable(v value) bool {
	return u.Exact || slices.ContainsFunc(u.pool[:len(u.inputs)], func(in value) bool { return in.Value == v.Value })
}

// addable is x, or something like it, whose sums of products of so many terms, each with
// an element of at most mag on a grid, are exact.
func (u *updates) addable(x value, terms int, mag float64, frac int) value {
	if !u.Exact || x.exact() && fits(x.mag*mag*float64(terms), x.frac+frac) {
		return x
	}
	small := u.positive(x.Max(u.b.Const(-4)).Min(u.b.Const(4)).Round()) // NaN stays
	if u.rng.IntN(2) == 0 {
		small = x.IsFinite().Select(small, x.Value)
	}
	return value{small, 4, 0}
}

// folded folds a whole tensor, perhaps axis by axis, and perhaps to a matrix of one
// element.
func (u *updates) folded() (value, bool) {
	x, ok := u.draw(isFloat, hasAxes)
	if !ok {
		return x, false
	}
	n, rank := int(x.Type().Size()), x.Type().Rank()
	out := x
	switch u.rng.IntN(4) {
	case 0:
		out.Value = u.positive(x.ReduceMax(all(rank)...))
	case 1:
		out.Value = u.positive(x.ReduceMin(all(rank)...))
	default:
		out = u.addable(x, n, 1, 0)
		if v := out.Value; rank > 1 && u.rng.IntN(2) == 0 {
			out.Value = u.positive(v.Sum(rank - 1).SumAll())
		} else {
			out.Value = u.positive(v.SumAll())
		}
		out.mag *= float64(n)
	}
	if u.rng.IntN(3) == 0 {
		out.Value = out.Reshape(slices.Repeat([]int{1}, rank)...)
	}
	return out, true
}

func all(rank int) []int {
	axes := make([]int, rank)
	for i := range axes {
		axes[i] = i
	}
	return axes
}

// clipped clamps, which is not defined where a number is not finite.
func (u *updates) clipped() (value, bool) {
	x, ok := u.floatOf()
	if !ok {
		return x, false
	}
	v := u.positive(x.IsFinite().Select(x.Value, u.b.Const(0.25)).Clip(-1, 2))
	return bits(v, 2, joint(x, x, max(x.frac, 2))), true
}

// rotated multiplies by a Walsh–Hadamard matrix of a size whose root is a power of two,
// which is exact on a grid.
func (u *updates) rotated() (value, bool) {
	x, ok := u.draw(isFloat, hasAxes, func(v value) bool { return v.Shape()[v.Type().Rank()-1]%4 == 0 })
	if !ok {
		return x, false
	}
	block, root := 4, 2.0
	if last := x.Shape()[x.Type().Rank()-1]; last%16 == 0 && u.rng.IntN(2) == 0 {
		block, root = 16, 4
	}
	if u.Exact {
		x = u.addable(x, block, 1, int(math.Log2(root)))
		x.Value = x.IsFinite().Select(x.Value, u.b.Const(0.25))
		if x.frac = max(x.frac, 2); !fits(x.mag*root, x.frac+2) {
			return x, false
		}
		return bits(u.positive(x.Hadamard(block)), x.mag*root, x.frac+2), true
	}
	return value{x.Hadamard(block), x.mag, rounded}, true
}

// reshaped shows the same elements under another shape.
func (u *updates) reshaped() (value, bool) {
	x, ok := u.draw()
	if !ok {
		return x, false
	}
	n := int(x.Type().Size())
	shapes := [][]int{{n}, {1, n}, {n, 1}, {1, 1, n}}
	if n == 1 {
		shapes = append(shapes, nil, []int{1, 1})
	}
	for _, rows := range []int{u.rows, u.cols, u.parts * u.rows} {
		if n%rows == 0 {
			shapes = append(shapes, []int{rows, n / rows})
		}
	}
	if n%(u.parts*u.rows) == 0 {
		shapes = append(shapes, []int{u.parts, u.rows, n / u.parts / u.rows})
	}
	x.Value = x.Reshape(shapes[u.rng.IntN(len(shapes))]...)
	return x, true
}
