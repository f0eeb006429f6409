package randprog

import (
	"math"

	"github.com/cage-qat/cage/sdk/program"
)

// move generates an operation on values from the pool.
type move func(g *generator, op program.Op) value

// moves is set in init because its functions refer to the generator. Elementwise operations on
// floats need no entry; see general.
var moves map[program.Op]move

func init() {
	moves = map[program.Op]move{
		program.OpConstant: constant, program.OpIota: iota, program.OpRandomBits: randomBits,
		program.OpNeg: signed, program.OpAbs: signed, program.OpSign: signed,
		program.OpSqrt: smooth, program.OpExp: smooth, program.OpExpm1: smooth, program.OpLog: smooth,
		program.OpLog1p: smooth, program.OpTanh: smooth,
		program.OpFloor: jump, program.OpRound: jump, program.OpLogb: logb, program.OpIsFinite: quotient,
		program.OpNot: logical, program.OpAnd: logical, program.OpOr: logical, program.OpXor: logical,
		program.OpAdd: arithmetic, program.OpSub: arithmetic, program.OpMul: arithmetic,
		program.OpMax: arithmetic, program.OpMin: arithmetic,
		program.OpDiv: divide, program.OpPow: power, program.OpLdexp: ldexp,
		program.OpShl: shift, program.OpShr: shift, program.OpClamp: clamp,
		program.OpEq: compare, program.OpNe: compare, program.OpLt: compare,
		program.OpLe: compare, program.OpGt: compare, program.OpGe: compare,
		program.OpSelect: choose, program.OpConvert: convert, program.OpBitcast: bitcast,
		program.OpReshape: reshape, program.OpTranspose: transpose, program.OpBroadcast: broadcast,
		program.OpSlice: slice, program.OpConcatenate: concatenate,
		program.OpReduceSum: reduce, program.OpReduceMax: reduce, program.OpReduceMin: reduce,
		program.OpDot: dot, program.OpHadamard: hadamard,
		program.OpStopGradient: stop,
		program.OpQR:           factorize, program.OpEighValues: factorize,
		program.OpEighVectors: factorize,
		program.OpSortColumns: sortColumns,
		program.OpNearest:     nearest, program.OpLookup: lookup, program.OpScatterAdd: scatterAdd,
		program.OpTopK: topK, program.OpOrderStatistic: orderStatistic,
	}
}

func (g *generator) unary(op program.Op, v value) program.Value {
	return g.b.Apply(op, program.Attr{}, program.Type{}, v.Value)
}

func (g *generator) binary(op program.Op, x, y value) program.Value {
	return g.b.Apply(op, program.Attr{}, program.Type{}, x.Value, y.Value)
}

// general applies a float function to numbers in [0.5, 2.5]. There, the function must be smooth,
// amplify errors by a factor of at most about fifty and return at most 64. Other functions need
// their own entry in moves.
func general(g *generator, op program.Op) value {
	info, _ := op.Info()
	x := g.draw(isFloat)
	args := []program.Value{x.Tanh().Shift(1.5)}
	for range info.Arity - 1 {
		args = append(args, g.draw(isFloat, g.compatible(x)).Tanh().Shift(1.5))
	}
	return value{g.b.Apply(op, program.Attr{}, program.Type{}, args...), 64, rounded}
}

func signed(g *generator, op program.Op) value {
	x := g.draw(func(v value) bool {
		if op == program.OpSign && v.float() {
			return v.exact()
		}
		return v.float() || v.Type().DType == program.Int
	})
	out := value{g.unary(op, x), x.mag, x.frac}
	if op == program.OpSign {
		out.mag, out.frac = 1, 0
	}
	return out
}

// smooth maps the argument of a function to a domain in which the function amplifies errors by a
// factor of at most about fifty, and applies it.
func smooth(g *generator, op program.Op) value {
	x := g.draw(isFloat)
	switch op {
	case program.OpSqrt, program.OpLog:
		x.Value, x.mag = x.Abs().Shift(0.5), x.mag+0.5
	case program.OpLog1p:
		x.Value = x.Abs()
	case program.OpExp, program.OpExpm1:
		factor := 1.0
		for ; x.mag > 4; x.mag /= 2 {
			factor /= 2
		}
		x.Value = x.Scale(factor)
	}
	mag := map[program.Op]float64{
		program.OpSqrt: math.Sqrt(x.mag), program.OpLog: max(1, math.Log(x.mag)),
		program.OpLog1p: math.Log1p(x.mag),
		program.OpExp:   math.Exp(x.mag), program.OpExpm1: math.Exp(x.mag), program.OpTanh: 1,
	}[op]
	return value{g.unary(op, x), mag, rounded}
}

func jump(g *generator, op program.Op) value {
	x := g.draw(isExact)
	return value{g.unary(op, x), x.mag + 1, 0}
}

func logb(g *generator, op program.Op) value {
	x := g.draw(isExact)
	x.Value = x.Abs().Shift(0.25)
	return value{g.unary(op, x), 8, 0}
}

// quotient divides by a value that may be zero, and replaces non-finite results.
func quotient(g *generator, op program.Op) value {
	y := g.draw(isExact, func(v value) bool { return v.frac <= 6 })
	x := g.draw(isExact, g.compatible(y)) // y itself, if nothing else
	q := x.Div(y.Value)
	finite := g.b.Apply(op, program.Attr{}, program.Type{}, q)
	return value{finite.Select(q, g.b.Const(0)), x.mag * math.Exp2(float64(y.frac)), rounded}
}

func arithmetic(g *generator, op program.Op) value {
	x := g.draw(isNumber)
	y := g.draw(typed(x.Type().DType), g.compatible(x))
	out := value{g.binary(op, x, y), x.mag + y.mag, max(x.frac, y.frac)}
	switch op {
	case program.OpMul:
		out.mag, out.frac = x.mag*y.mag, x.frac+y.frac
	case program.OpMax, program.OpMin:
		out.mag = max(x.mag, y.mag)
	}
	if !x.exact() || !y.exact() || out.frac > 40 {
		out.frac = rounded
	}
	return out
}

func divide(g *generator, op program.Op) value {
	x := g.draw(isFloat)
	y := g.draw(isFloat, g.compatible(x))
	y.Value = y.Abs().Shift(0.5)
	return value{g.binary(op, x, y), 2 * x.mag, rounded}
}

// power raises a number of at least 0.5 to a power in [−2, 2].
func power(g *generator, op program.Op) value {
	x := g.draw(isFloat)
	y := g.draw(isFloat, g.compatible(x))
	x.Value, x.mag = x.Abs().Shift(0.5), x.mag+0.5
	y.Value = y.Tanh().Scale(2)
	return value{g.binary(op, x, y), max(4, x.mag*x.mag), rounded}
}

// ldexp scales by a power of two with an integer exponent in [−4, 4].
func ldexp(g *generator, op program.Op) value {
	x := g.draw(isFloat)
	n := g.draw(isExact, g.compatible(x))
	n.Value = n.Round().Clip(-4, 4)
	out := value{g.binary(op, x, n), 16 * x.mag, rounded}
	if x.exact() {
		out.frac = x.frac + 4
	}
	return out
}

func logical(g *generator, op program.Op) value {
	x := g.draw(isLogical)
	if op == program.OpNot {
		return value{Value: g.unary(op, x)}
	}
	y := g.draw(typed(x.Type().DType), g.compatible(x))
	return value{Value: g.binary(op, x, y)}
}

func shift(g *generator, op program.Op) value {
	x := g.draw(isInteger)
	y := g.draw(typed(x.Type().DType), g.compatible(x))
	y.Value = y.And(g.integer(x.Type().DType, 31))
	return value{Value: g.binary(op, x, y)}
}

// clamp clamps to an interval around a constant or, unless Smooth is set, around a scalar of the
// program.
func clamp(g *generator, op program.Op) value {
	x := g.draw(isFloat)
	c := float64(g.rng.IntN(17)-8) / 4
	middle := value{g.b.Const(c), math.Abs(c), 2}
	if !g.Smooth && g.rng.IntN(2) == 0 {
		if y, ok := g.find(isFloat, isScalar); ok {
			middle = y
		}
	}
	width := float64(g.rng.IntN(9)) / 4
	lo, hi := middle.Shift(-width), middle.Shift(width)
	out := value{g.b.Apply(op, program.Attr{}, program.Type{}, x.Value, lo, hi), middle.mag + width,
		rounded}
	if x.exact() && middle.exact() {
		out.frac = max(x.frac, middle.frac, 2)
	}
	return out
}

func (g *generator) integer(t program.DType, v int32) program.Value {
	if t == program.Uint {
		return g.b.ConstUint(uint32(v))
	}
	return g.b.ConstInt(v)
}

func compare(g *generator, op program.Op) value {
	x := g.draw(func(v value) bool {
		equality := op == program.OpEq || op == program.OpNe
		return isInteger(v) || isExact(v) || (equality && isBool(v))
	})
	y := g.draw(typed(x.Type().DType), g.compatible(x),
		func(v value) bool { return !v.float() || v.exact() })
	return value{Value: g.binary(op, x, y)}
}

func choose(g *generator, op program.Op) value {
	cond := g.draw(isBool)
	x := g.draw(g.compatible(cond))
	y := g.draw(typed(x.Type().DType), g.compatible(cond), g.compatible(x))
	out := value{g.b.Apply(op, program.Attr{}, program.Type{}, cond.Value, x.Value, y.Value),
		max(x.mag, y.mag), max(x.frac, y.frac)}
	if !x.exact() || !y.exact() {
		out.frac = rounded
	}
	return out
}

// convert converts between any two types. Only exact floats are converted to integers, and integers
// are masked to eight bits before conversion to floats.
func convert(g *generator, op program.Op) value {
	x := g.draw(func(v value) bool { return !v.float() || v.exact() })
	to := program.DType(1 + g.rng.IntN(4))
	switch from := x.Type().DType; {
	case to == program.Uint && from == program.Float:
		x.Value = x.Abs()
	case to == program.Float && isInteger(x):
		x.Value, x.mag = x.And(g.integer(from, 255)), 255
	case from == program.Bool:
		x.mag = 1
	}
	return value{g.b.Apply(op, program.Attr{}, program.Type{DType: to}, x.Value), x.mag, x.frac}
}

// bitcast reinterprets a nonnegative exact float as bits, or the bits of an integer as a float in
// [1, 2).
func bitcast(g *generator, op program.Op) value {
	x := g.draw(func(v value) bool { return isInteger(v) || isExact(v) })
	to := program.DType(1 + g.rng.IntN(3))
	from := x.Type().DType
	switch {
	case from == program.Float:
		x.Value = x.Abs()
	case to == program.Float:
		x.Value = x.And(g.integer(from, 1<<23-1)).Or(g.integer(from, 0x3F800000))
		x.mag, x.frac = 2, rounded
	}
	return value{g.b.Apply(op, program.Attr{}, program.Type{DType: to}, x.Value), x.mag, x.frac}
}

func stop(g *generator, op program.Op) value {
	x := g.draw()
	return value{g.unary(op, x), x.mag, x.frac}
}
