package loops

// A Quantizer rounds numbers to integers within bounds, whose magnitudes are at most [Small], and
// multiplies the integers by a scale.
type Quantizer struct {
	Divides  bool    // whether numbers are divided by Divisor first
	Divisor  float32 // of all numbers
	Low      float32 // bounds
	High     float32
	Scale    float32
	Distance float32 // largest distance to the bounds at which a number counts as near
}

// Quantized holds the outputs of a Quantizer: slices of equal length, any of which may be nil.
type Quantized struct {
	Whole  []float32 // the integers
	Codes  []int8    // the integers as int8
	Values []float32 // the integers times the scale
	Short  []uint16  // Values in bfloat16
	Near   []bool    // whether a number is within Distance of its clamped value
}

// Part returns the results with indices from i up to but not including j.
func (r Quantized) Part(i, j int) Quantized {
	return Quantized{part(r.Whole, i, j), part(r.Codes, i, j), part(r.Values, i, j),
		part(r.Short, i, j), part(r.Near, i, j)}
}

func part[T any](a []T, i, j int) []T {
	if a == nil {
		return nil
	}
	return a[i:j]
}

// Run quantizes every element of a; r.Whole may share its memory. The results have the same bits as
// those of separate loops: [BinaryS] with [Div], [Clamp], [RoundSmall], [ToInt8], BinaryS with
// [Mul], [ToBFloat16], [Near] and [ToBools].
func (q *Quantizer) Run(r Quantized, a []float32) {
	if hasAVX512 {
		n := quantize512(q, &r, a)
		if n == len(a) {
			return
		}
		r, a = r.Part(n, len(a)), a[n:]
	}
	q.piecewise(r, a)
}

// piecewise runs the separate loops over pieces small enough for the L1 cache.
func (q *Quantizer) piecewise(r Quantized, a []float32) {
	var x, c, y [256]float32
	for len(a) > 0 {
		n := min(len(a), len(x))
		x, c, y := x[:n], c[:n], y[:n]
		if q.Divides {
			BinaryS(Div, x, a[:n], q.Divisor)
		} else {
			copy(x, a)
		}
		Clamp(c, x, q.Low, q.High)
		if r.Near != nil {
			Near(y, x, c, q.Distance)
			ToBools(r.Near[:n], y)
		}
		RoundSmall(c, c)
		copy(r.Whole, c)
		if r.Codes != nil {
			ToInt8(r.Codes[:n], c)
		}
		if r.Values != nil {
			BinaryS(Mul, r.Values[:n], c, q.Scale)
		}
		if r.Short != nil {
			BinaryS(Mul, y, c, q.Scale)
			ToBFloat16(r.Short[:n], y)
		}
		r, a = r.Part(n, len(a)), a[n:]
	}
}
