package microscaling

import (
	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/program"
)

// ScaleType is the type of numbers to which a quantizer rounds its scales. Formats of other
// programs store scales in a short type: weights that are trained with scales of that type
// are stored exactly.
type ScaleType string

// The types of scales.
const (
	ScaleF32  ScaleType = "f32"  // not rounded
	ScaleBF16 ScaleType = "bf16" // 8 significant bits, the exponents of binary32
	ScaleF16  ScaleType = "f16"  // IEEE binary16: 11 significant bits, up to 65504
)

// scaleParameter is the name of the parameter of [ScaleParameter].
const scaleParameter = "scale_dtype"

// ScaleParameter declares the parameter scale_dtype.
func ScaleParameter() sdk.Parameter {
	return sdk.Choice(scaleParameter, string(ScaleF32), []string{string(ScaleF32), string(ScaleBF16), string(ScaleF16)},
		"type of numbers to which scales are rounded: bf16 and f16 are those of formats that other programs load")
}

// ScaleTypeOf is the type that a site sets.
func ScaleTypeOf(site sdk.Site) ScaleType { return ScaleType(site.Text(scaleParameter)) }

// Round rounds scales to the nearest number of the type, ties to even. Scales are not
// negative. What is above the largest number becomes that, and what is below the smallest
// normal number of bf16 or the smallest number of f16, zero included, becomes this, so that
// no scale is zero. What becomes of NaN and infinities is not defined.
func (t ScaleType) Round(v program.Value) program.Value {
	switch t {
	case ScaleBF16:
		return roundSignificand(v, 8, 0x1p-126, 0x1p127).Clip(0x1p-126, 0x1.fep127)
	case ScaleF16:
		return roundSignificand(v, 11, 0x1p-14, 0x1p15).Clip(0x1p-24, 65504)
	}
	return v
}

// RoundStep is Round for the step of a grid of half-integers up to 7½. With f16 it keeps 7
// significant bits, so that 7½ steps are a number of the type, too: formats store the
// lowest level beside the step.
func (t ScaleType) RoundStep(v program.Value) program.Value {
	if t == ScaleF16 {
		const largest = 68 * 128 // 7½ times it is the last of these below 65504
		return roundSignificand(v, 7, 0x1p-17, 0x1p13).Clip(0x1p-23, largest)
	}
	return t.Round(v)
}

// roundSignificand rounds to so many significant bits; numbers below the power of two least
// keep the distance that those from there on have. Those above the power largest have to be
// cut off by the caller.
func roundSignificand(v program.Value, bits int, least, largest float64) program.Value {
	b := v.Builder()
	power := v.Bitcast(program.Uint).And(b.ConstUint(exponentBits)).Bitcast(program.Float).Clip(least, largest)
	scale := 1.0
	for range bits - 1 {
		scale /= 2
	}
	distance := power.Scale(scale)
	return v.Div(distance).Round().Mul(distance)
}
