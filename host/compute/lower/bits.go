package lower

import (
	"math"

	"github.com/cage-qat/cage/host/compute/graph"
	"github.com/cage-qat/cage/host/compute/shapes"
	"github.com/cage-qat/cage/sdk/program"
)

// The binary32 format.
const (
	mantissaBits = 23          // stored bits of the fraction
	bias         = 127         // of the stored exponent; also the largest exponent of a number
	minNormal    = 1 - bias    // exponent of the smallest normal number
	infinityBits = 0x7F80_0000 // +Inf
)

// lowerLogb extracts the exponent from the bits. Subnormal numbers store exponent 0; their true
// exponent follows from the position of the leading bit.
func lowerLogb(l *lowering, _ *program.Node, args []*graph.Node) *graph.Node {
	x, zero := args[0], l.integer(0)
	magnitude := graph.And(graph.Bitcast(x, shapes.Int32), l.integer(math.MaxInt32))
	stored := graph.ShiftRightLogical(magnitude, l.integer(mantissaBits))
	normal := graph.Sub(stored, l.integer(bias))
	subnormal := graph.Sub(l.integer(31+minNormal-mantissaBits), graph.CountLeadingZeros(magnitude))
	exponent := graph.Where(graph.Equal(stored, zero), subnormal, normal)
	y := graph.ConvertDType(exponent, shapes.Float32)
	y = graph.Where(graph.Equal(magnitude, zero), l.scalar(math.Inf(-1)), y)
	finite := graph.LessThan(magnitude, l.integer(infinityBits))
	return graph.Where(finite, y, graph.Abs(x))
}

// lowerLdexp multiplies by three representable powers of two whose product is 2ⁿ. Only a subnormal
// result may be inexact. For a negative exponent, the product with the first power is normal, hence
// exact, unless the result is zero, so that only the second product rounds; rounding twice could
// give another result. For a positive exponent no product rounds unless the result overflows.
func lowerLdexp(l *lowering, _ *program.Node, args []*graph.Node) *graph.Node {
	const lowest = minNormal - mantissaBits // exponent of the smallest positive number
	x, exponent := args[0], args[1]
	// Exponents beyond these limits give 0 or Inf for every number but 0 and Inf. Clamping also
	// makes infinite exponents representable as integers.
	e := graph.Min(graph.Max(exponent, l.scalar(lowest-bias-2)), l.scalar(bias-lowest+1))
	zero := l.scalar(0)
	down, up := graph.Min(graph.Sub(e, l.scalar(lowest)), zero), graph.Min(e, l.scalar(bias))
	first := graph.Where(graph.LessThan(e, zero), down, up)
	rest := graph.Sub(e, first)
	second := graph.Min(rest, l.scalar(bias))
	number := graph.Equal(exponent, exponent) // not NaN
	x = graph.Mul(x, graph.Where(number, l.smallPower(first), exponent))
	x = graph.Mul(x, l.smallPower(second))
	return graph.Mul(x, l.powerOfTwo(graph.Sub(rest, second)))
}

// powerOfTwo returns 2ᵉ for integers e in the range of normal numbers.
func (l *lowering) powerOfTwo(e *graph.Node) *graph.Node {
	stored := graph.Add(graph.ConvertDType(e, shapes.Int32), l.integer(bias))
	return graph.Bitcast(graph.ShiftLeft(stored, l.integer(mantissaBits)), shapes.Float32)
}

// smallPower returns 2ᵉ, also if it is subnormal: the product of two normal powers, which is exact.
func (l *lowering) smallPower(e *graph.Node) *graph.Node {
	normal := graph.Max(e, l.scalar(minNormal))
	return graph.Mul(l.powerOfTwo(normal), l.powerOfTwo(graph.Sub(e, normal)))
}
