// Package factor recognizes programs that compute a matrix of small numbers times scales, as quantizers do. The small
// numbers are either integers, with one scale for each row ([Rows]), which can be multiplied in integer arithmetic, or
// four-bit floats in blocks with scales ([Blocks]), which some GPUs multiply directly.
//
// It only reads programs; it does not matter which quantizer a program belongs to.
package factor

import (
	"math"
	"slices"

	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/transform"
)

// Names of the outputs that [Rows] adds.
const (
	// OutputIntegers holds the integers, from −127 to 127, as floats of the matrix's shape [n, m].
	OutputIntegers = "factor.integers"
	// OutputScale holds the scales, [n, 1]. If a row has NaN among its integers, its scale is NaN.
	OutputScale = "factor.scale"
)

// largest is the largest magnitude of the integers, so that 8 bits hold them.
const largest = 127

// Rows returns p with two more outputs, whose product is the output with the given name, a matrix. This holds in exact
// arithmetic and, because the integers are small, in binary32, except for the smallest numbers. ok is false if the
// integers and scales cannot be seen in the program.
func Rows(p *program.Program, output string) (factored *program.Program, ok bool) {
	id, ok := p.Output(output)
	if !ok {
		return nil, false
	}
	n := p.Node(id)
	if t := p.TypeOf(id); n == nil || n.Op != program.OpMul || t.DType != program.Float || len(t.Shape) != 2 {
		return nil, false
	}
	known := numbers(p)
	for i, codes := range n.Args {
		scale, c := n.Args[1-i], known[codes]
		step := min(c.step, 1) // with a larger one, the scale could become infinite
		if p.TypeOf(codes).Equal(p.TypeOf(id)) && isScale(p.TypeOf(scale), p.TypeOf(id)) && step > 0 && max(-c.lo, c.hi)/step <= largest {
			return extend(p, func(values []program.Value) []program.Value { return integers(values[codes], values[scale], step) },
				OutputIntegers, OutputScale), true
		}
	}
	return nil, false
}

// isScale reports whether t has one number for each row of a matrix, or one for all.
func isScale(t, matrix program.Type) bool {
	return t.Size() == 1 || len(t.Shape) == 2 && t.Shape[0] == matrix.Shape[0] && t.Shape[1] == 1
}

// integers are the two outputs. The sum of a row, times zero, is added to its scale: it makes the scale NaN if one of the integers is.
func integers(codes, scale program.Value, step float64) []program.Value {
	integers := codes.Scale(1 / step)
	rows := integers.Shape()[0]
	return []program.Value{integers, integers.ReduceSum(1).Reshape(rows, 1).Scale(0).Add(scale).Scale(step)}
}

// extend returns p with more outputs, computed from its values.
func extend(p *program.Program, more func(values []program.Value) []program.Value, names ...string) *program.Program {
	b := program.NewBuilder(p.Name)
	given := make([]program.Value, p.NumValues())
	for i, in := range p.Inputs {
		given[i] = b.Input(in.Name, in.Type)
	}
	values := transform.Copy(b, p, given)
	for _, o := range p.Outputs {
		b.Output(o.Name, values[o.Value])
	}
	for i, v := range more(values) {
		b.Output(names[i], v)
	}
	extended, err := b.Build()
	if err != nil {
		panic(err) // p is not valid
	}
	return extended
}

// exponentBits masks the exponent of a float32. What the mask leaves of a float is 0, a power of two, or ∞.
const exponentBits = 0x7f800000

// numbers finds what is known of each value of p, by abstract interpretation. It knows the operations with which quantizers round, clip and
// shift.
func numbers(p *program.Program) []set {
	var known []set
	for range p.Inputs {
		known = append(known, anything)
	}
	return transform.Interpret(p, slices.Clone(known), func(_ program.ID, n *program.Node, args []set) set {
		s := anything
		switch {
		case n.Type.DType == program.Float:
			s = numbersOf(n, args, known)
			if n.Op == program.OpDiv {
				// On some devices clamps turn NaN into numbers. A clamp of this quotient could then give a number that the quotient does
				// not bound, unless its dividend was clamped, too, and so has no NaN on these devices.
				s.near.known = node(p, n.Args[0], program.OpClamp) != nil
			}
		// The set of an integer value is that of the floats with the same bits.
		case n.Op == program.OpAnd && slices.ContainsFunc(n.Args, func(id program.ID) bool { return isMask(p, id) }):
			s.lo, s.unit, s.unsigned = 0, 1, true
		case n.Op == program.OpBitcast && p.TypeOf(n.Args[0]).DType == program.Float:
			s = args[0].permuted()
		}
		switch {
		case math.IsNaN(s.lo) || math.IsNaN(s.hi): // ∞ − ∞
			s = anything
		case s.isNaN():
			s = onlyNaN
		}
		s = s.inBinary32()
		known = append(known, s)
		return s
	})
}

// isMask reports whether a value is the constant exponentBits.
func isMask(p *program.Program, id program.ID) bool {
	n := node(p, id, program.OpConstant)
	return n != nil && slices.Equal(n.Attr.Ints, []int64{exponentBits})
}

func (s set) is(x float64) bool { return len(s.listed) == 1 && s.listed[0] == x }

// numbersOf is what is known of the result of a node. args are the sets of its operands, known those of all values before it.
func numbersOf(n *program.Node, args, known []set) set {
	switch n.Op {
	case program.OpConstant:
		return constant(n.Attr.Floats)
	case program.OpRound:
		return args[0].round(math.RoundToEven, 0.5)
	case program.OpFloor:
		return args[0].round(math.Floor, 1)
	case program.OpLogb:
		return set{lo: math.Inf(-1), hi: math.Inf(1), step: 1}
	case program.OpSign:
		return set{lo: -1, hi: 1, step: 1, unit: 1}
	case program.OpNeg:
		return args[0].neg()
	case program.OpClamp:
		return args[0].clamp(args[1], args[2])
	case program.OpSelect:
		return args[1].union(args[2])
	case program.OpAdd:
		return args[0].plus(args[1])
	case program.OpSub:
		return args[0].plus(args[1].neg())
	case program.OpAbs:
		return set{lo: 0, hi: args[0].magnitude(), step: args[0].step, unit: args[0].unit, unsigned: true, near: args[0].near}
	case program.OpDiv:
		s := anything
		s.near = quotientBound{known: true, num: n.Args[0], den: n.Args[1]}
		if args[0].positive() && args[1].positive() {
			s.lo, s.unsigned = 0, true
		}
		return s
	case program.OpMul:
		return product(n, args, known)
	case program.OpLdexp:
		return args[0].ldexp(args[1])
	case program.OpReshape, program.OpBroadcast, program.OpReduceMax, program.OpReduceMin:
		return args[0].permuted()
	case program.OpStopGradient, program.OpBitcast: // bits have the set of their floats
		return args[0]
	}
	return anything
}

// product is what is known of a node's product. If one factor is bounded by a quotient whose divisor is the other factor, a power of
// two, then the product is bounded by the dividend.
func product(n *program.Node, args, known []set) set {
	a, b := args[0], args[1]
	corners := []float64{a.lo * b.lo, a.lo * b.hi, a.hi * b.lo, a.hi * b.hi}
	for i, c := range corners {
		if math.IsNaN(c) { // 0·∞ is NaN, which does not count, and 0 times any number is 0
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
			const rounding = 1 + 1.0/(1<<20) // allows for those of the quotient, of mostSums sums and of this product, in binary32
			const underflow = 0x1p-149       // allows for that of the quotient
			size := (known[q.near.num].magnitude() + (q.near.more+underflow)*d.hi) * rounding
			u.lo, u.hi = max(u.lo, -size), min(u.hi, size)
		}
	}
	u = u.inBinary32().checkUnit()
	u.listed = productMembers(a, b, u)
	return u
}

// constant is the set of the elements of a constant, rounded to binary32.
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
		one := set{lo: f, hi: f, step: step, unit: 2 * fraction, unsigned: !math.Signbit(f), listed: []float64{f}}
		if f == 0 || math.IsInf(f, 0) {
			one.unit = 1
		}
		s = s.union(one)
	}
	return s
}
