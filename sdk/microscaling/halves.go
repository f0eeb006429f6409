package microscaling

import (
	"math"

	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/program"
)

// ScaleType is the type to which a quantizer rounds its scales. File formats store scales in 16
// bits, which is exact if the weights were trained with scales of that type.
type ScaleType string

// The types of scales.
const (
	ScaleF32  ScaleType = "f32"  // not rounded
	ScaleBF16 ScaleType = "bf16" // 8 significant bits, the exponents of binary32
	ScaleF16  ScaleType = "f16"  // IEEE binary16: 11 significant bits, up to 65504
)

// scaleParameter is the name of the parameter that [ScaleParameter] declares.
const scaleParameter = "scale_dtype"

// ScaleParameter declares the parameter scale_dtype.
func ScaleParameter() sdk.Parameter {
	types := []string{string(ScaleF32), string(ScaleBF16), string(ScaleF16)}
	return sdk.Choice(scaleParameter, string(ScaleF32), types, "type of numbers to which scales are "+
		"rounded: bf16 and f16 are those of formats that other programs load")
}

// ScaleTypeOf returns the scale type in the settings of a site.
func ScaleTypeOf(site sdk.Site) ScaleType { return ScaleType(site.Text(scaleParameter)) }

// Round rounds nonnegative scales to the nearest number of the type, ties to even, clipped to its
// largest number and, so that no scale is zero, to the smallest normal number of bf16 or the
// smallest number of f16. The result for NaN and infinities is not defined. f32 changes nothing.
func (t ScaleType) Round(v program.Value) program.Value {
	switch t {
	case ScaleBF16:
		// Round the bits to nearest, ties to even: add half of the last kept bit less one, plus
		// one if that bit is set, and truncate. Unlike roundSignificand this needs no ulp, which
		// could be subnormal here, and flushed to zero on some devices.
		b, bits := v.Builder(), v.Bitcast(program.Uint)
		odd := bits.Shr(b.ConstUint(16)).And(b.ConstUint(1))
		bits = bits.Add(odd).Add(b.ConstUint(1<<15 - 1)).And(b.ConstUint(0xffff0000))
		return bits.Bitcast(program.Float).Clip(0x1p-126, 0x1.fep127)
	case ScaleF16:
		return roundSignificand(v, 11, 0x1p-14, 0x1p15).Clip(0x1p-24, 65504)
	}
	return v
}

// HalfIntegerFactors holds, by the number of bits, the factors by which QuEST's published code
// (IST-DASLab/QuEST, src/models/quantization/base_linear.py) multiplies the standard deviation of a
// Gaussian for the largest level of a grid of half-integers. They agree with the exact optima to
// about 3e-5 for up to 5 bits, and are 0.04 %, 0.28 % and 0.95 % below them for 6, 7 and 8 bits.
var HalfIntegerFactors = [9]float64{
	1: 0.7978845587140913,
	2: 1.4935346200015913,
	3: 2.051068354131873,
	4: 2.513930578568423,
	5: 2.9160938834961225,
	6: 3.276597282593217,
	7: 3.6010497188221655,
	8: 3.884938678807525,
}

// RoundStep rounds the step of a grid of integers, or, if half, of half-integers up to 7½. For
// half-integers and f16 it keeps only 7 significant bits, so that 7½ steps are exact in f16, too:
// formats store the lowest level along with the step.
func (t ScaleType) RoundStep(v program.Value, half bool) program.Value {
	if half && t == ScaleF16 {
		const largest = 68 * 128 // with 7 significant bits, such that 7½ times it is below 65504
		return roundSignificand(v, 7, 0x1p-17, 0x1p13).Clip(0x1p-23, largest)
	}
	return t.Round(v)
}

// Single rounds v to binary32, the type in which file formats store the scale of a tensor, whatever
// the precision of the computation. A bitcast to an integer and back has this effect.
func Single(v program.Value) program.Value { return v.Bitcast(program.Uint).Bitcast(program.Float) }

// roundSignificand rounds v to the given number of significant bits. least and largest are
// powers of two. Below least, the ulp is that of least. From 2·largest on the ulp used is too
// small, so the caller has to clip such numbers.
func roundSignificand(v program.Value, bits int, least, largest float64) program.Value {
	b := v.Builder()
	exponent := v.Bitcast(program.Uint).And(b.ConstUint(exponentBits))
	power := exponent.Bitcast(program.Float).Clip(least, largest)
	distance := power.Scale(math.Ldexp(1, 1-bits))
	return v.Div(distance).Round().Mul(distance)
}
