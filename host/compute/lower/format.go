package lower

import (
	"math"

	"github.com/gomlx/compute/dtypes"
)

// format is a binary floating-point format of the device.
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

// infinity is the bit pattern of +Inf.
func (f format) infinity() int64 { return int64(2*f.bias+1) << f.mantissa }

// shifter is 1.5·2^mantissa: the floats around it are the integers, so that adding
// and subtracting it rounds a number of at most exact in magnitude to the nearest
// integer, ties to even.
func (f format) shifter() float64 { return 1.5 * math.Ldexp(1, f.mantissa) }
func (f format) exact() float64   { return math.Ldexp(1, f.mantissa-1) }
