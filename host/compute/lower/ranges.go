package lower

import (
	"math"
	"slices"

	"github.com/cage-qat/cage/sdk/program"
)

// bounds is what is known of all elements of a value: the numbers lie between lo and
// hi, and some may be NaN only if nan is set. Of integers nothing is known where the
// bounds are infinite.
type bounds struct {
	lo, hi float64
	nan    bool
}

var unknown = bounds{math.Inf(-1), math.Inf(1), true}

// within reports whether every element that is not NaN lies in [lo, hi].
func (s bounds) within(lo, hi float64) bool { return s.lo >= lo && s.hi <= hi }

func (s bounds) or(o bounds) bounds {
	return bounds{min(s.lo, o.lo), max(s.hi, o.hi), s.nan || o.nan}
}

// ranges bounds the values of p. It knows the operations that limit a value and those
// that pass one on, which is enough for the clipping of quantizers. Of other results
// it knows nothing.
func ranges(p *program.Program) []bounds {
	inputs := slices.Repeat([]bounds{unknown}, len(p.Inputs))
	return program.Interpret(p, inputs, func(_ program.ID, n *program.Node, args []bounds) bounds {
		if n.Op == program.OpConvert {
			return convertedRange(n.Type.DType, p.TypeOf(n.Args[0]).DType, args[0])
		}
		return rangeOf(n, args)
	})
}

func rangeOf(n *program.Node, args []bounds) bounds {
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
		return clampedRange(args[0], args[1], args[2])
	case program.OpSelect:
		return args[1].or(args[2])
	case program.OpConcatenate:
		all := args[0]
		for _, a := range args[1:] {
			all = all.or(a)
		}
		return all
	}
	return unaryRange(n, args)
}

// clampedRange allows for any number within the bounds where x is NaN.
func clampedRange(x, lo, hi bounds) bounds {
	out := bounds{min(max(x.lo, lo.lo), hi.lo), min(max(x.hi, lo.hi), hi.hi), x.nan || lo.nan || hi.nan}
	if x.nan {
		out.lo, out.hi = lo.lo, hi.hi
	}
	return out
}

func unaryRange(n *program.Node, args []bounds) bounds {
	switch n.Op {
	case program.OpReshape, program.OpTranspose, program.OpBroadcast, program.OpSlice,
		program.OpReduceMax, program.OpReduceMin, program.OpStopGradient:
		return args[0]
	case program.OpNeg:
		if n.Type.DType == program.Float { // an integer may wrap
			return bounds{-args[0].hi, -args[0].lo, args[0].nan}
		}
	case program.OpAbs:
		if n.Type.DType == program.Float {
			return bounds{max(args[0].lo, -args[0].hi, 0), max(math.Abs(args[0].lo), math.Abs(args[0].hi)), args[0].nan}
		}
	case program.OpSign, program.OpTanh:
		return bounds{-1, 1, args[0].nan}
	case program.OpFloor:
		return bounds{math.Floor(args[0].lo), math.Floor(args[0].hi), args[0].nan}
	case program.OpRound:
		return bounds{math.RoundToEven(args[0].lo), math.RoundToEven(args[0].hi), args[0].nan}
	}
	return unknown
}

// constantRange rounds outward to the device's precision.
func constantRange(a program.Attr) bounds {
	s := bounds{math.Inf(1), math.Inf(-1), false}
	for _, v := range a.Floats {
		rounded := float64(float32(v))
		s = s.or(bounds{min(v, rounded), max(v, rounded), math.IsNaN(v)})
	}
	for _, v := range a.Ints {
		s = s.or(bounds{float64(v), float64(v), false})
	}
	if s.nan {
		return unknown
	}
	return s
}

// convertedRange keeps the bounds of a number that becomes a float. A float may be
// out of an integer's range.
func convertedRange(to, from program.DType, x bounds) bounds {
	switch {
	case to != program.Float:
		return unknown
	case from == program.Bool:
		return bounds{0, 1, false}
	}
	return bounds{x.lo, x.hi, x.nan && from == program.Float}
}
