package randprog

import (
	"math"
	"slices"

	"github.com/cage-qat/cage/sdk/program"
)

// updateMove generates one operation, or a few. It gives up if the result could not be compared.
type updateMove func(u *updates) value

var elementwiseMoves = []updateMove{
	(*updates).twoOperands, (*updates).twoOperands, (*updates).twoOperands, (*updates).decayed,
	(*updates).oneOperand, (*updates).oneOperand,
	(*updates).chosen, (*updates).compared, (*updates).folded, (*updates).folded, (*updates).clipped,
	(*updates).rotated, (*updates).reshaped,
}

// partner draws a float for an elementwise operation with x. Except in general programs, where both
// may be broadcast, the result is as large as one of them.
func (u *updates) partner(x value) value {
	y, ok := u.find(isFloat, func(y value) bool {
		a, b := x.Type(), y.Type()
		one := len(a.Shape) == 0 || len(b.Shape) == 0 || len(a.Shape) == len(b.Shape) &&
			(a.Size() == 1 || b.Size() == 1)
		return one || slices.Equal(a.Shape, b.Shape) || u.Family == General && u.compatible(x)(y)
	})
	if !ok {
		return x
	}
	return y
}

// bits returns a correctly rounded value. It remains on its grid if the grid is fine enough.
func bits(v program.Value, mag float64, frac int) value {
	if frac != rounded && !fits(mag, frac) {
		frac = rounded
	}
	return value{v, mag, frac}
}

// positive makes zeros positive, because their sign may be undefined.
func (u *updates) positive(v program.Value) program.Value { return v.Add(u.b.Const(0)) }

// joint returns frac if both operands are on a grid, and rounded otherwise.
func joint(x, y value, frac int) int {
	if !x.exact() || !y.exact() {
		return rounded
	}
	return frac
}

func (u *updates) twoOperands() value {
	x := u.draw(isFloat)
	y := u.partner(x)
	finest := max(x.frac, y.frac)
	switch u.rng.IntN(7) {
	case 0:
		return bits(x.Add(y.Value), x.mag+y.mag, joint(x, y, finest))
	case 1:
		return bits(x.Sub(y.Value), x.mag+y.mag, joint(x, y, finest))
	case 2, 3:
		return bits(x.Mul(y.Value), x.mag*y.mag, joint(x, y, x.frac+y.frac))
	case 4:
		return bits(u.positive(x.Max(y.Value)), max(x.mag, y.mag), joint(x, y, finest))
	case 5:
		return bits(u.positive(x.Min(y.Value)), max(x.mag, y.mag), joint(x, y, finest))
	}
	if !u.Exact {
		return value{x.Div(y.Abs().Shift(0.5)), x.mag, rounded}
	}
	return value{x.Div(y.Value), 1, rounded}
}

// decayed returns an exponential moving average of a value or its square. Executors fuse these
// operations.
func (u *updates) decayed() value {
	x := u.draw(isFloat)
	y := u.partner(x)
	if u.rng.IntN(2) == 0 {
		return value{x.Scale(0.9).Add(y.Scale(0.1)), x.mag + y.mag, rounded}
	}
	return value{x.Scale(0.95).Add(y.Square().Scale(0.05)), x.mag + y.mag*y.mag, rounded}
}

func (u *updates) oneOperand() value {
	x := u.draw(isFloat)
	abs := u.positive(x.Abs())
	if !u.Exact {
		switch u.rng.IntN(6) {
		case 0:
			return value{x.Neg(), x.mag, rounded}
		case 1:
			return value{abs.Shift(0.5).Sqrt(), 1, rounded}
		case 4:
			return value{abs.Shift(0.5).Log(), 1, rounded}
		case 2:
			return value{abs.Log1p(), 1, rounded}
		case 3:
			return value{abs.Shift(0.5).Pow(x.Max(u.b.Const(-1)).Min(u.b.Const(1))), 1, rounded}
		}
		return value{x.Max(u.b.Const(-2)).Min(u.b.Const(2)).Expm1(), 2, rounded}
	}
	switch u.rng.IntN(6) {
	case 0:
		return bits(x.Neg(), x.mag, x.frac)
	case 1:
		return bits(abs, x.mag, x.frac)
	case 2:
		return bits(u.positive(x.Sign()), 1, 0)
	case 3:
		return value{abs.Sqrt().Scale(3).Shift(1e-8), 1, rounded}
	case 4:
		return bits(u.positive(x.Floor()), x.mag+1, min(x.frac, 0))
	}
	return bits(u.positive(x.Round()), x.mag+1, min(x.frac, 0))
}

// chosen selects elementwise or by a scalar. In smooth programs, conditions depend only on inputs,
// which have no errors.
func (u *updates) chosen() value {
	cond := u.draw(isBool)
	fits := func(y value) bool {
		return cond.Type().Size() == 1 && len(cond.Shape()) == 0 || slices.Equal(cond.Shape(), y.Shape())
	}
	x := u.draw(isFloat, fits)
	y := u.draw(isFloat, func(y value) bool {
		return len(y.Shape()) == 0 ||
			slices.Equal(x.Shape(), y.Shape())
	})
	return bits(cond.Select(x.Value, y.Value), max(x.mag, y.mag), joint(x, y, max(x.frac, y.frac)))
}

// compared returns a comparison, or a combination of bools.
func (u *updates) compared() value {
	if p, ok := u.find(isBool); ok && u.rng.IntN(3) == 0 {
		q := u.draw(isBool, func(q value) bool { return slices.Equal(p.Shape(), q.Shape()) })
		op := []program.Op{program.OpAnd, program.OpOr, program.OpXor, program.OpNe,
			program.OpNot}[u.rng.IntN(5)]
		if op == program.OpNot {
			return value{Value: p.Not()}
		}
		return value{Value: u.binary(op, p, q)}
	}
	x := u.draw(isFloat, u.comparable)
	if u.rng.IntN(4) == 0 {
		return value{Value: x.IsFinite()}
	}
	y := u.draw(isFloat, u.comparable,
		func(y value) bool { return len(y.Shape()) == 0 || slices.Equal(x.Shape(), y.Shape()) })
	ops := []program.Op{program.OpEq, program.OpNe, program.OpLt, program.OpLe, program.OpGt,
		program.OpGe}
	return value{Value: u.binary(ops[u.rng.IntN(len(ops))], x, y)}
}

// comparable accepts values that have no rounding errors.
func (u *updates) comparable(v value) bool {
	return u.Exact || slices.ContainsFunc(u.pool[:len(u.inputs)],
		func(in value) bool { return in.Value == v.Value })
}

// addable returns x if sums of the given number of terms are exact, where a term is an element of x
// times a number of at most mag on the grid of frac. Otherwise it returns x rounded to small
// integers.
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

// folded reduces a whole tensor to a scalar or to a tensor with one element.
func (u *updates) folded() value {
	x := u.draw(isFloat, hasAxes)
	rank := x.Type().Rank()
	var axes []int
	for axis := range rank {
		axes = append(axes, axis)
	}
	out := u.fold(x, axes)
	if u.rng.IntN(3) == 0 {
		out.Value = out.Reshape(slices.Repeat([]int{1}, rank)...)
	}
	return out
}

// fold reduces axes. It sometimes divides a sum into two reductions.
func (u *updates) fold(x value, axes []int) value {
	switch u.rng.IntN(4) {
	case 0:
		x.Value = u.positive(x.ReduceMax(axes...))
	case 1:
		x.Value = u.positive(x.ReduceMin(axes...))
	default:
		n := int(x.Type().Size())
		x = u.addable(x, n, 1, 0)
		x.mag *= float64(n)
		if last := len(axes) - 1; last > 0 && u.rng.IntN(2) == 0 {
			x.Value, axes = x.ReduceSum(axes[last]), axes[:last]
		}
		x.Value = u.positive(x.ReduceSum(axes...))
	}
	return x
}

// finite replaces non-finite elements.
func (u *updates) finite(x value) value {
	return value{x.IsFinite().Select(x.Value, u.b.Const(0.25)), max(x.mag, 0.25),
		joint(x, x, max(x.frac, 2))}
}

// clipped clamps between constants or around a computed scalar. Operands are made finite, because
// clamping is undefined for non-finite bounds.
func (u *updates) clipped() value {
	x := u.finite(u.draw(isFloat))
	middle, ok := u.find(isFloat, isScalar)
	if !ok || u.rng.IntN(2) == 0 {
		return bits(u.positive(x.Clip(-1, 2)), 2, x.frac)
	}
	middle = u.finite(middle)
	v := u.positive(x.Clamp(middle.Shift(-1), middle.Shift(1)))
	return bits(v, middle.mag+1, joint(x, middle, max(x.frac, middle.frac)))
}

// rotated multiplies by a Walsh–Hadamard matrix whose order has a power of two as its square root,
// so that the result is exact on a grid.
func (u *updates) rotated() value {
	x := u.draw(isFloat, hasAxes, func(v value) bool { return v.Shape()[v.Type().Rank()-1]%4 == 0 })
	block, root := 4, 2.0
	if last := x.Shape()[x.Type().Rank()-1]; last%16 == 0 && u.rng.IntN(2) == 0 {
		block, root = 16, 4
	}
	if u.Exact {
		x = u.addable(x, block, 1, int(math.Log2(root)))
		x.Value = x.IsFinite().Select(x.Value, u.b.Const(0.25))
		if x.frac = max(x.frac, 2); !fits(x.mag*root, x.frac+2) {
			u.giveUp()
		}
		return bits(u.positive(x.Hadamard(block)), x.mag*root, x.frac+2)
	}
	return value{x.Hadamard(block), x.mag, rounded}
}

// reshaped returns the same elements in another shape.
func (u *updates) reshaped() value {
	x := u.draw()
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
	return x
}
