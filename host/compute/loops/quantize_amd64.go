//go:build amd64 && goexperiment.simd

package loops

import "simd/archsimd"

// A rounding holds the vector constants for rounding to bfloat16.
type rounding struct{ half, one, quiet archsimd.Uint32x16 }

func newRounding() rounding {
	all := archsimd.BroadcastUint32x16
	return rounding{all(0x7fff), all(1), all(1 << 22)}
}

func (r rounding) short(x floats16) archsimd.Uint16x16 {
	bits := x.ToBits()
	rounded := bits.Add(r.half).Add(bits.ShiftAllRight(16).And(r.one))
	return bits.Or(r.quiet).IfElse(x.NotEqual(x), rounded).ShiftAllRight(16).TruncToUint16()
}

func quantize512(q *Quantizer, r *Quantized, a []float32) int {
	n, all := len(a)&^15, archsimd.BroadcastFloat32x16
	divisor, low, high, scale, distance := all(q.Divisor), all(q.Low), all(q.High), all(q.Scale),
		all(q.Distance)
	shift, one, round := all(shifter), archsimd.BroadcastUint32x16(1), newRounding()
	whole, codes, values, short, near := r.Whole, r.Codes, r.Values, r.Short, bytesOf(r.Near)
	for at := 0; at < n; at += 16 {
		x := get16(a[at:])
		if q.Divides {
			x = x.Div(divisor)
		}
		c := low.IfElse(x.Less(low), x)
		c = high.IfElse(c.Greater(high), c)
		if near != nil {
			one.Masked(x.Sub(c).Abs().LessEqual(distance)).TruncToUint8().Store(near[at:])
		}
		c = c.Add(shift).Sub(shift)
		if whole != nil {
			c.Store(whole[at:])
		}
		if codes != nil {
			c.ConvertToInt32().SaturateToInt8().Store(codes[at:])
		}
		c = c.Mul(scale)
		if values != nil {
			c.Store(values[at:])
		}
		if short != nil {
			round.short(c).Store(short[at:])
		}
	}
	archsimd.ClearAVXUpperBits()
	return n
}
