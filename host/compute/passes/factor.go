package passes

import (
	"math"
	"slices"

	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/transform"
)

// Names of the outputs that [FactorRows] adds.
const (
	// OutputIntegers is a float matrix [n, m] with the integers, from −128 to 127.
	OutputIntegers = "factor.integers"
	// OutputScale has the shape [n, 1]. The scale of a row is NaN if one of its integers is NaN.
	OutputScale = "factor.scale"
)

// FactorRows returns p with two more outputs, integers and scales, whose product is the named
// output, a matrix. In binary32 the product is exact, too, because the integers are small, except
// for the smallest numbers. ok is false if the program does not compute the output in such a way.
func FactorRows(p *program.Program, output string) (factored *program.Program, ok bool) {
	id, ok := p.Output(output)
	if !ok {
		return nil, false
	}
	n, matrix := p.Node(id), p.TypeOf(id)
	isMatrix := matrix.DType == program.Float && len(matrix.Shape) == 2
	if n == nil || n.Op != program.OpMul || !isMatrix {
		return nil, false
	}
	known := numbers(p)
	for i, codes := range n.Args {
		scale, c := n.Args[1-i], known[codes]
		step := min(c.step, 1) // with a larger one, the scale could become infinite
		t := p.TypeOf(scale)   // one number for each row, or one for all
		isScale := t.Size() == 1 || slices.Equal(t.Shape, []int{matrix.Shape[0], 1})
		fits := step > 0 && c.lo/step >= math.MinInt8 && c.hi/step <= math.MaxInt8
		if !p.TypeOf(codes).Equal(matrix) || !isScale || !fits {
			continue
		}
		b := program.NewBuilder(p.Name)
		values := transform.Copy(b, p, transform.Inputs(b, p, nil))
		for _, o := range p.Outputs {
			b.Output(o.Name, values[o.Value])
		}
		integers := values[codes].Scale(1 / step)
		b.Output(OutputIntegers, integers)
		// The sum of the row times zero makes its scale NaN if one of the integers is NaN.
		sums := integers.ReduceSum(1).Reshape(matrix.Shape[0], 1)
		b.Output(OutputScale, sums.Scale(0).Add(values[scale]).Scale(step))
		extended, err := b.Build()
		if err != nil {
			panic(err) // p is not valid
		}
		return extended, true
	}
	return nil, false
}

// A set contains all values that the elements of a value can have in binary32, except NaN: they are
// in [lo, hi] and, unless step is 0, multiples of step, a power of two. Rounding to binary32
// preserves multiples of a power of two.
type set struct{ lo, hi, step float64 }

var (
	anything = set{lo: math.Inf(-1), hi: math.Inf(1)}
	onlyNaN  = set{lo: math.Inf(1), hi: math.Inf(-1), step: coarsest}
)

// The smallest and the largest step. The set {0} has the largest step.
const finest, coarsest = 1.0 / (1 << 20), 1 << 20

func (s set) magnitude() float64 { return max(-s.lo, s.hi) }

func (s set) union(o set) set { return set{min(s.lo, o.lo), max(s.hi, o.hi), min(s.step, o.step)} }

// round returns the image of the set under f, which must round to an integer.
func (s set) round(f func(float64) float64) set { return set{f(s.lo), f(s.hi), max(s.step, 1)} }

func (s set) neg() set { return set{-s.hi, -s.lo, s.step} }

func (s set) plus(o set) set { return set{s.lo + o.lo, s.hi + o.hi, min(s.step, o.step)} }

func (s set) times(o set) set {
	corners := []float64{s.lo * o.lo, s.lo * o.hi, s.hi * o.lo, s.hi * o.hi}
	for i, c := range corners {
		if math.IsNaN(c) { // 0·∞ is NaN, which does not count, and 0 times any number is 0
			corners[i] = 0
		}
	}
	u := set{lo: slices.Min(corners), hi: slices.Max(corners)}
	if step := s.step * o.step; step >= finest && step <= coarsest {
		u.step = step
	}
	return u
}

// numbers computes the set of each value of p by abstract interpretation. It supports the
// operations with which quantizers round and clip.
func numbers(p *program.Program) []set {
	inputs := slices.Repeat([]set{anything}, len(p.Inputs))
	return transform.Interpret(p, inputs, func(_ program.ID, n *program.Node, args []set) set {
		s := anything
		if n.Type.DType == program.Float {
			s = numbersOf(n, args)
		}
		switch {
		case math.IsNaN(s.lo) || math.IsNaN(s.hi): // ∞ − ∞
			return anything
		case s.lo > s.hi:
			return onlyNaN
		}
		s.lo, s.hi = float64(float32(s.lo)), float64(float32(s.hi)) // rounding is monotonic
		return s
	})
}

func numbersOf(n *program.Node, args []set) set {
	switch n.Op {
	case program.OpConstant:
		return constant(n.Attr.Floats)
	case program.OpRound:
		return args[0].round(math.RoundToEven)
	case program.OpFloor:
		return args[0].round(math.Floor)
	case program.OpSign:
		return set{-1, 1, 1}
	case program.OpNeg:
		return args[0].neg()
	case program.OpClamp: // it may turn NaN into a limit
		x, lo, hi := args[0], args[1], args[2]
		inside := set{min(max(x.lo, lo.lo), hi.lo), min(max(x.hi, lo.hi), hi.hi), x.step}
		return inside.union(lo).union(hi)
	case program.OpSelect:
		return args[1].union(args[2])
	case program.OpAdd:
		return args[0].plus(args[1])
	case program.OpSub:
		return args[0].plus(args[1].neg())
	case program.OpAbs:
		return set{0, args[0].magnitude(), args[0].step}
	case program.OpMul:
		return args[0].times(args[1])
	case program.OpReshape, program.OpBroadcast, program.OpReduceMax, program.OpReduceMin,
		program.OpStopGradient:
		return args[0]
	}
	return anything
}

// constant returns the set of a constant's elements, rounded to binary32.
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
		s = s.union(set{f, f, step})
	}
	return s
}
