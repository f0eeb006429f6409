// Package factor finds out that a matrix which a program computes is whole numbers times one scale for each row, as
// uniform quantizers make it. Such a matrix can be multiplied in integers.
//
// It reads programs, and nothing else: what quantizer a program is of does not matter.
package factor

import (
	"math"
	"slices"

	"github.com/cage-qat/cage/sdk/program"
)

// Names of the outputs that [Rows] adds.
const (
	// OutputIntegers are the whole numbers, from −127 to 127, as floats of the matrix's shape [n, m].
	OutputIntegers = "factor.integers"
	// OutputScale are the scales, [n, 1]. Where the integers of a row have NaN among them its scale is NaN.
	OutputScale = "factor.scale"
)

// largest is what 8 bits with a sign hold.
const largest = 127

// Rows returns p with two more outputs, whose product is the named one, a matrix, in exact arithmetic and, because the
// integers are small, in binary32 but for the smallest numbers. It is not ok where the program does not show them.
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
		if p.TypeOf(codes).Equal(p.TypeOf(id)) && isScale(p.TypeOf(scale), p.TypeOf(id)) && c.step > 0 && max(-c.lo, c.hi)/c.step <= largest {
			return split(p, codes, scale, c.step), true
		}
	}
	return nil, false
}

// isScale tells whether t has one number for each row of a matrix, or one for all.
func isScale(t, matrix program.Type) bool {
	return t.Size() == 1 || len(t.Shape) == 2 && t.Shape[0] == matrix.Shape[0] && t.Shape[1] == 1
}

// split adds the outputs. Zero times the sum of the integers is zero, or NaN where one of them is.
func split(p *program.Program, codes, scale program.ID, step float64) *program.Program {
	b := program.NewBuilder(p.Name)
	given := make([]program.Value, p.NumValues())
	for i, in := range p.Inputs {
		given[i] = b.Input(in.Name, in.Type)
	}
	values := b.Copy(p, given)
	for _, o := range p.Outputs {
		b.Output(o.Name, values[o.Value])
	}
	integers := values[codes].Scale(1 / step)
	rows := integers.Shape()[0]
	b.Output(OutputIntegers, integers)
	b.Output(OutputScale, integers.Sum(1).Reshape(rows, 1).Scale(0).Add(values[scale]).Scale(step))
	factored, err := b.Build()
	if err != nil {
		panic(err) // p is not valid
	}
	return factored
}

// A set is what is known of all elements of a value that are not NaN: they lie between lo and hi, and are multiples of
// step, a power of two; where that is 0 they may be any. A float32 that is rounded from a multiple of a power of two is
// one, too.
type set struct{ lo, hi, step float64 }

var (
	anything = set{math.Inf(-1), math.Inf(1), 0}
	nothing  = set{math.Inf(1), math.Inf(-1), coarsest} // NaN alone
)

// Steps that are told apart: 0 is a multiple of the coarsest.
const finest, coarsest = 1.0 / (1 << 20), 1 << 20

// numbers bounds the values of p. It knows the operations that quantizers round, clip and shift with.
func numbers(p *program.Program) []set {
	inputs := slices.Repeat([]set{anything}, len(p.Inputs))
	return program.Interpret(p, inputs, func(_ program.ID, n *program.Node, args []set) set {
		s := anything
		if n.Type.DType == program.Float {
			s = numbersOf(n, args)
		}
		switch {
		case math.IsNaN(s.lo) || math.IsNaN(s.hi): // ∞ − ∞
			return anything
		case s.lo > s.hi:
			return nothing
		}
		return s
	})
}

func numbersOf(n *program.Node, args []set) set {
	switch n.Op {
	case program.OpConstant:
		return constant(n.Attr.Floats)
	case program.OpRound:
		return args[0].whole(math.RoundToEven)
	case program.OpFloor:
		return args[0].whole(math.Floor)
	case program.OpNeg:
		return set{-args[0].hi, -args[0].lo, args[0].step}
	case program.OpClamp: // NaN becomes one of the limits
		x, lo, hi := args[0], args[1], args[2]
		return set{min(max(x.lo, lo.lo), hi.lo), min(max(x.hi, lo.hi), hi.hi), min(x.step, lo.step, hi.step)}.or(lo).or(hi)
	case program.OpSelect:
		return args[1].or(args[2])
	case program.OpAdd:
		return set{args[0].lo + args[1].lo, args[0].hi + args[1].hi, min(args[0].step, args[1].step)}
	case program.OpSub:
		return set{args[0].lo - args[1].hi, args[0].hi - args[1].lo, min(args[0].step, args[1].step)}
	case program.OpReshape, program.OpBroadcast, program.OpStopGradient:
		return args[0]
	}
	return anything
}

// or has the elements of both.
func (s set) or(o set) set { return set{min(s.lo, o.lo), max(s.hi, o.hi), min(s.step, o.step)} }

// whole is s after a function that makes whole numbers of others.
func (s set) whole(f func(float64) float64) set { return set{f(s.lo), f(s.hi), max(s.step, 1)} }

// constant has the elements of a constant as float32 has them.
func constant(elements []float64) set {
	s := nothing
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
		s = s.or(set{f, f, step})
	}
	return s
}
