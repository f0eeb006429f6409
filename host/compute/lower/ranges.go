package lower

import (
	"math"
	"slices"

	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/transform"
)

// bounds limits all elements of a value. Those that are numbers lie between lo and hi. NaN can occur only if nan is set.
type bounds struct {
	lo, hi float64
	nan    bool
}

var unknown = bounds{math.Inf(-1), math.Inf(1), true}

// within reports whether every element that is not NaN lies in [lo, hi].
func (s bounds) within(lo, hi float64) bool { return s.lo >= lo && s.hi <= hi }

func (s bounds) union(o bounds) bounds {
	return bounds{min(s.lo, o.lo), max(s.hi, o.hi), s.nan || o.nan}
}

// ranges returns the bounds of all values of p. It knows the operations that limit a value and those that pass one on,
// which is enough for the clipping of quantizers. The results of all others are unknown.
func ranges(p *program.Program) []bounds {
	inputs := slices.Repeat([]bounds{unknown}, len(p.Inputs))
	return transform.Interpret(p, inputs, func(_ program.ID, n *program.Node, args []bounds) bounds {
		float := n.Type.DType == program.Float
		switch n.Op {
		case program.OpConstant:
			return constantRange(n.Attr)
		case program.OpIota:
			return bounds{0, float64(n.Type.Shape[n.Attr.Axes[0]] - 1), false}
		case program.OpMax:
			return bounds{max(args[0].lo, args[1].lo), max(args[0].hi, args[1].hi), args[0].nan || args[1].nan}
		case program.OpMin:
			return bounds{min(args[0].lo, args[1].lo), min(args[0].hi, args[1].hi), args[0].nan || args[1].nan}
		case program.OpClamp:
			x, lo, hi := args[0], args[1], args[2]
			if x.nan { // NaN may become any number within the limits
				return bounds{lo.lo, hi.hi, true}
			}
			return bounds{min(max(x.lo, lo.lo), hi.lo), min(max(x.hi, lo.hi), hi.hi), lo.nan || hi.nan}
		case program.OpSelect:
			return args[1].union(args[2])
		case program.OpConcatenate:
			all := args[0]
			for _, a := range args[1:] {
				all = all.union(a)
			}
			return all
		case program.OpReshape, program.OpTranspose, program.OpBroadcast, program.OpSlice,
			program.OpReduceMax, program.OpReduceMin, program.OpStopGradient:
			return args[0]
		case program.OpNeg:
			if float { // an integer may wrap
				return bounds{-args[0].hi, -args[0].lo, args[0].nan}
			}
		case program.OpAbs:
			if float {
				return bounds{max(args[0].lo, -args[0].hi, 0), max(math.Abs(args[0].lo), math.Abs(args[0].hi)), args[0].nan}
			}
		case program.OpSign, program.OpTanh:
			return bounds{-1, 1, args[0].nan}
		case program.OpFloor:
			return bounds{math.Floor(args[0].lo), math.Floor(args[0].hi), args[0].nan}
		case program.OpRound:
			return bounds{math.RoundToEven(args[0].lo), math.RoundToEven(args[0].hi), args[0].nan}
		case program.OpConvert: // a float may be out of an integer's range
			switch from := p.TypeOf(n.Args[0]).DType; {
			case float && from == program.Bool:
				return bounds{0, 1, false}
			case float:
				return bounds{args[0].lo, args[0].hi, args[0].nan && from == program.Float}
			}
		}
		return unknown
	})
}

// constantRange covers the elements of a constant, as they are and as the device rounds them.
func constantRange(a program.Attr) bounds {
	s := bounds{math.Inf(1), math.Inf(-1), false}
	for _, v := range a.Floats {
		rounded := float64(float32(v))
		s = s.union(bounds{min(v, rounded), max(v, rounded), math.IsNaN(v)})
	}
	for _, v := range a.Ints {
		s = s.union(bounds{float64(v), float64(v), false})
	}
	if s.nan {
		return unknown
	}
	return s
}

// delayRounding rewrites clip(round(x)), where clip is a clamp, a maximum or a
// minimum, to round(clip(x)) if the bounds are integers. The result is the same, as
// integers round to themselves, and the Go backend rounds a number that is known to be
// small in two vectorized steps. A rounded value with other uses stays as it is.
func delayRounding(p *program.Program) (*program.Program, error) {
	b := program.NewBuilder(p.Name)
	inputs := make([]program.Value, len(p.Inputs))
	for i, in := range p.Inputs {
		inputs[i] = b.Input(in.Name, in.Type)
	}
	uses := countUses(p)
	rounded := map[program.ID]program.Value{} // the operand of round, by the id of its result
	values := transform.Interpret(p, inputs, func(id program.ID, n *program.Node, args []program.Value) program.Value {
		if n.Op == program.OpRound {
			rounded[id] = args[0]
		}
		if j := delayedOperand(p, n, uses, rounded); j >= 0 {
			args[j] = rounded[n.Args[j]]
			rounded[id] = b.Apply(n.Op, n.Attr, n.Type, args...)
			return rounded[id].Round()
		}
		return b.Apply(n.Op, n.Attr, n.Type, args...)
	})
	for _, o := range p.Outputs {
		b.Output(o.Name, values[o.Value])
	}
	return b.Build()
}

// delayedOperand returns the position of the operand of a clamp, max or min that is the result of a rounding with no other
// use, if all other operands are constant integers; otherwise -1.
func delayedOperand(p *program.Program, n *program.Node, uses []int, rounded map[program.ID]program.Value) int {
	if n.Op != program.OpClamp && n.Op != program.OpMax && n.Op != program.OpMin {
		return -1
	}
	found := -1
	for j, id := range n.Args {
		if integral(p.Node(id)) {
			continue
		}
		if _, ok := rounded[id]; !ok || uses[id] != 1 || found >= 0 {
			return -1
		}
		found = j
	}
	return found
}

// integral reports whether a node is a constant scalar integer that every format
// represents.
func integral(n *program.Node) bool {
	if n == nil || n.Op != program.OpConstant || len(n.Attr.Floats) != 1 {
		return false
	}
	v := n.Attr.Floats[0]
	return v == math.Trunc(v) && math.Abs(v) <= 1<<24
}

// countUses counts, for each value, the operands and outputs that use it.
func countUses(p *program.Program) []int {
	uses := make([]int, p.NumValues())
	for i := range p.Nodes {
		for _, a := range p.Nodes[i].Args {
			uses[a]++
		}
	}
	for _, o := range p.Outputs {
		uses[o.Value]++
	}
	return uses
}
