package factor

import (
	"math"
	"slices"

	"github.com/cage-qat/cage/sdk/program"
)

// exponentBits of a float32, alone, are 0, a power of two, or ∞.
const exponentBits = 0x7f800000

// numbers bounds the values of p. It knows the operations that quantizers round, clip and shift with.
func numbers(p *program.Program) []set {
	var known []set
	for range p.Inputs {
		known = append(known, anything)
	}
	return program.Interpret(p, slices.Clone(known), func(_ program.ID, n *program.Node, args []set) set {
		s := anything
		switch {
		case n.Type.DType == program.Float:
			s = numbersOf(n, args, known)
			if n.Op == program.OpDiv {
				// A limit may make a number of NaN, one that is near nothing. What it has limited before has no NaN then.
				s.near.known = node(p, n.Args[0], program.OpClamp) != nil
			}
		// What is known of integers is known of the floats with their bits.
		case n.Op == program.OpAnd && slices.ContainsFunc(n.Args, func(id program.ID) bool { return isMask(p, id) }):
			s.lo, s.unit, s.unsigned = 0, 1, true
		case n.Op == program.OpBitcast && p.TypeOf(n.Args[0]).DType == program.Float:
			s = args[0].elsewhere()
		}
		switch {
		case math.IsNaN(s.lo) || math.IsNaN(s.hi): // ∞ − ∞
			s = anything
		case s.isNaN():
			s = onlyNaN
		}
		s = s.single()
		known = append(known, s)
		return s
	})
}

// isMask tells whether a value is an integer of the exponent's bits.
func isMask(p *program.Program, id program.ID) bool {
	n := node(p, id, program.OpConstant)
	return n != nil && slices.Equal(n.Attr.Ints, []int64{exponentBits})
}

func (s set) is(x float64) bool { return len(s.few) == 1 && s.few[0] == x }

// numbersOf bounds the result of a node; known are all values before it.
func numbersOf(n *program.Node, args, known []set) set {
	switch n.Op {
	case program.OpConstant:
		return constant(n.Attr.Floats)
	case program.OpRound:
		return args[0].whole(math.RoundToEven, 0.5)
	case program.OpFloor:
		return args[0].whole(math.Floor, 1)
	case program.OpLogb:
		return set{lo: math.Inf(-1), hi: math.Inf(1), step: 1}
	case program.OpSign:
		return set{lo: -1, hi: 1, step: 1, unit: 1}
	case program.OpNeg:
		return args[0].neg()
	case program.OpClamp:
		return args[0].clamp(args[1], args[2])
	case program.OpSelect:
		return args[1].or(args[2])
	case program.OpAdd:
		return args[0].plus(args[1])
	case program.OpSub:
		return args[0].plus(args[1].neg())
	case program.OpAbs:
		return set{lo: 0, hi: args[0].size(), step: args[0].step, unit: args[0].unit, unsigned: true, near: args[0].near}
	case program.OpDiv:
		s := anything
		s.near = near{known: true, num: n.Args[0], den: n.Args[1]}
		if args[0].positive() && args[1].positive() {
			s.lo, s.unsigned = 0, true
		}
		return s
	case program.OpMul:
		return product(n, args, known)
	case program.OpLdexp:
		return args[0].ldexp(args[1])
	case program.OpReshape, program.OpBroadcast, program.OpReduceMax, program.OpReduceMin:
		return args[0].elsewhere()
	case program.OpStopGradient, program.OpBitcast: // what is known of bits is of the floats that they are
		return args[0]
	}
	return anything
}

// product bounds a node's product. What is near the quotient of a number and a power of two, times that power, is near
// the number.
func product(n *program.Node, args, known []set) set {
	a, b := args[0], args[1]
	corners := []float64{a.lo * b.lo, a.lo * b.hi, a.hi * b.lo, a.hi * b.hi}
	for i, c := range corners {
		if math.IsNaN(c) { // 0·∞: what is near it is any number of its sign
			corners[i] = 0
		}
	}
	u := set{lo: slices.Min(corners), hi: slices.Max(corners), unsigned: a.positive() && b.positive()}
	if a.unit*b.unit == max(a.unit, b.unit) {
		u.unit = a.unit * b.unit
	}
	if s := a.step * b.step; s >= finest && s <= coarsest {
		u.step = s
	}
	for i, den := range n.Args {
		q, d := args[1-i], args[i]
		if q.near.known && q.near.den == den && d.unit == 1 && d.lo > 0 {
			const rounding = 1 + 1.0/(1<<20) // of the quotient, of mostSums sums and of this product, in binary32
			const underflow = 0x1p-149       // of a quotient that is so small
			size := (known[q.near.num].size() + (q.near.more+underflow)*d.hi) * rounding
			u.lo, u.hi = max(u.lo, -size), min(u.hi, size)
		}
	}
	u = u.single().exact()
	u.few = products(a, b, u)
	return u
}

// constant has the elements of a constant as float32 has them.
func constant(elements []float64) set {
	s := onlyNaN
	for _, x := range elements {
		f := float64(float32(x))
		if math.IsNaN(f) {
			continue
		}
		step := float64(coarsest)
		for step >= finest && f != step*math.Trunc(f/step) {
			step /= 2
		}
		if step < finest || math.IsInf(f, 0) {
			step = 0
		}
		fraction, _ := math.Frexp(math.Abs(f))
		one := set{lo: f, hi: f, step: step, unit: 2 * fraction, unsigned: !math.Signbit(f), few: []float64{f}}
		if f == 0 || math.IsInf(f, 0) {
			one.unit = 1
		}
		s = s.or(one)
	}
	return s
}
