package lower

import (
	"math"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/gomlx/core/graph"

	"github.com/cage-qat/cage/sdk/program"
)

// lowerLogb extracts the exponent from the bits. The stored exponent of a subnormal number is 0;
// its exponent follows from the position of its leading bit.
func lowerLogb(l *lowering, _ *program.Node, args []*graph.Node) *graph.Node {
	x, f := args[0], l.float
	magnitude := graph.BitwiseAnd(graph.Bitcast(x, f.bits), l.integer(int64(1)<<(f.width-1)-1))
	stored := graph.BitwiseShiftRightLogical(magnitude, l.integer(int64(f.mantissa)))
	normal := graph.Sub(stored, l.integer(int64(f.bias)))
	subnormal := graph.Sub(l.integer(int64(f.width-1+f.minExponent())), graph.Clz(magnitude))
	zero := l.integer(0)
	exponent := graph.ConvertDType(graph.Where(graph.Equal(stored, zero), subnormal, normal), f.dtype)
	exponent = graph.Where(graph.Equal(magnitude, zero), l.scalar(math.Inf(-1)), exponent)
	finite := graph.LessThan(magnitude, l.integer(f.infinity()))
	return graph.Where(finite, exponent, graph.Abs(x))
}

// lowerLdexp multiplies by powers of two whose product is 2ⁿ, in an order in which
// only the last product rounds: a subnormal result that is rounded twice may differ
// from one that is rounded once.
func lowerLdexp(l *lowering, _ *program.Node, args []*graph.Node) *graph.Node {
	x, exponent, f := args[0], args[1], l.float
	// 2ᵉ is split into three representable factors. Only a subnormal result is inexact. For a negative
	// exponent, the product with the first factor is normal, hence exact, unless the result is zero, so
	// that only the second product rounds. For a positive exponent no product rounds unless the result
	// overflows.
	c := func(v int) *graph.Node { return l.scalar(float64(v)) }
	lo, hi := f.minExponent(), f.bias
	// With exponents beyond these limits, every number but 0 and Inf becomes 0 or Inf. The
	// limits also replace infinite exponents, which no integer represents.
	e := graph.Min(graph.Max(exponent, c(lo-hi-2)), c(hi-lo+1))
	first := graph.Where(graph.LessThan(e, c(0)), graph.Min(graph.Sub(e, c(lo)), c(0)), graph.Min(e, c(hi)))
	rest := graph.Sub(e, first)
	second := graph.Min(rest, c(hi))
	x = graph.Mul(x, graph.Where(graph.Equal(exponent, exponent), l.smallPower(first), exponent)) // NaN stays
	x = graph.Mul(x, l.smallPower(second))
	return graph.Mul(x, l.powerOfTwo(graph.Sub(rest, second)))
}

// powerOfTwo returns 2ᵉ for integers e in the range of normal numbers.
func (l *lowering) powerOfTwo(e *graph.Node) *graph.Node {
	f := l.float
	stored := graph.Add(graph.ConvertDType(e, f.bits), l.integer(int64(f.bias)))
	return graph.Bitcast(graph.BitwiseShiftLeft(stored, l.integer(int64(f.mantissa))), f.dtype)
}

// smallPower returns 2ᵉ for subnormal powers, too: the product of two normal powers, which is
// exact.
func (l *lowering) smallPower(e *graph.Node) *graph.Node {
	normal := graph.Max(e, l.scalar(float64(l.float.minNormal())))
	return graph.Mul(l.powerOfTwo(normal), l.powerOfTwo(graph.Sub(e, normal)))
}

// format is a binary floating-point format.
type format struct {
	dtype dtypes.DType
	// bits is the signed integer type of the same width.
	bits dtypes.DType
	// width counts the bits of an element, mantissa those of the stored fraction.
	width, mantissa int
	// bias of the stored exponent; also the largest exponent of a number.
	bias int
}

var (
	single = format{dtype: dtypes.Float32, bits: dtypes.Int32, width: 32, mantissa: 23, bias: 127}
	double = format{dtype: dtypes.Float64, bits: dtypes.Int64, width: 64, mantissa: 52, bias: 1023}
)

// minNormal and minExponent are the exponents of the smallest normal and the
// smallest positive number.
func (f format) minNormal() int   { return 1 - f.bias }
func (f format) minExponent() int { return f.minNormal() - f.mantissa }

// infinity returns the bit pattern of +Inf.
func (f format) infinity() int64 { return int64(2*f.bias+1) << f.mantissa }
