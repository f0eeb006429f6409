package loops

// A Quantizer rounds numbers to whole ones between bounds of at most [Small], and multiplies these
// by a scale.
type Quantizer struct {
	Divides  bool    // whether numbers are divided first
	Divisor  float32 // of all of them
	Low      float32 // bounds
	High     float32
	Scale    float32
	Distance float32 // from the bounds up to which a number counts as near
}

// Quantized is where a Quantizer writes: slices of one length, of which each may be nil.
type Quantized struct {
	Whole  []float32 // the whole numbers
	Codes  []int8    // the same
	Values []float32 // times the scale
	Short  []uint16  // these in bfloat16
	Near   []bool    // whether a number is no farther from what the bounds make of it than the distance
}

// Part is the part of the results from element i up to element j.
func (r Quantized) Part(i, j int) Quantized {
	return Quantized{part(r.Whole, i, j), part(r.Codes, i, j), part(r.Values, i, j), part(r.Short, i, j), part(r.Near, i, j)}
}

func part[T any](a []T, i, j int) []T {
	if a == nil {
		return nil
	}
	return a[i:j]
}

// Run quantizes every element of a, of which Whole may be the place. It has the bits of [BinaryS]
// by [Div], [Clamp], [RoundSmall], [ToInt8], BinaryS by [Mul], [ToBFloat16], and [Near] and
// [ToBools].
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

// piecewise runs the loops of each step over so few elements that they stay in the nearest cache.
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
