//go:build amd64 && goexperiment.simd

package loops

import (
	"math"
	"simd/archsimd"
)

var negInf = float32(math.Inf(-1))

// maxColumnsVectors returns how many columns it has computed, as expColumnsVectors does.
func maxColumnsVectors(most, a []float32) (from int) {
	width := len(most)
	if hasAVX512 {
		for ; from+32 <= width; from += 32 { // two at a time, as each maximum waits for the one before
			x, y := get16(most[from:]), get16(most[from+16:])
			for i := from; i+32 <= len(a); i += width {
				x, y = get16(a[i:]).Max(x), get16(a[i+16:]).Max(y)
			}
			x.Store(most[from:])
			y.Store(most[from+16:])
		}
	}
	for ; from+8 <= width; from += 8 {
		x := get(most[from:])
		for i := from; i < len(a); i += width {
			x = get(a[i:]).Max(x)
		}
		x.Store(most[from:])
	}
	archsimd.ClearAVXUpperBits()
	return from
}

func expColumnsVectors(a []float32, scale float32, down, sums []float32, rounds bool) (from int) {
	width := len(sums)
	if hasAVX512 {
		for ; from+16 <= width; from += 16 {
			expColumns512(a, scale, down, sums, rounds, from)
		}
	}
	for ; from+8 <= width; from += 8 {
		expColumns256(a, scale, down, sums, rounds, from)
	}
	archsimd.ClearAVXUpperBits()
	return from
}

func expColumns512(a []float32, scale float32, down, sums []float32, rounds bool, from int) {
	all := archsimd.BroadcastFloat32x16
	low, shift, factor, upper, lower := all(weightLeast), all(shifter), all(log2e), all(log2Upper), all(log2Lower)
	p0, p1, p2, p3, p4, p5, one := all(expP0), all(expP1), all(expP2), all(expP3), all(expP4), all(expP5), all(1)
	round := newRounding()
	width, times, less, total := len(sums), all(scale), get16(down[from:]), get16(sums[from:])
	for start := from; start < len(a); start += sumRows * width {
		var sum floats16
		for i := start; i < min(len(a), start+sumRows*width); i += width {
			x := get16(a[i:]).Mul(times).Sub(less)
			x = weight512(x, low, shift, factor, upper, lower, p0, p1, p2, p3, p4, p5, one)
			sum = sum.Add(x)
			if rounds {
				x = round.float(x)
			}
			x.Store(a[i:])
		}
		total = total.Add(sum)
	}
	total.Store(sums[from:])
}

// pairedColumnsVectors is expColumnsVectors for [Paired].
func pairedColumnsVectors(a []float32, scale float32, down, sums []float32) (from int) {
	all := archsimd.BroadcastFloat32x16
	low, shift, factor, upper, lower := all(weightLeast), all(shifter), all(log2e), all(log2Upper), all(log2Lower)
	p0, p1, p2, p3, p4, p5, one := all(expP0), all(expP1), all(expP2), all(expP3), all(expP4), all(expP5), all(1)
	round := newRounding()
	width, times := len(sums), all(scale)
	for ; from+16 <= width; from += 16 {
		less, total := get16(down[from:]), get16(sums[from:])
		for start := from; start < len(a); start += sumRows * width {
			var sum floats16
			end, to := min(len(a), start+sumRows*width), from+(start-from)/2
			for i := start; i < end; i += 2 * width {
				x := get16(a[i:]).Mul(times).Sub(less)
				x = weight512(x, low, shift, factor, upper, lower, p0, p1, p2, p3, p4, p5, one)
				sum = sum.Add(x)
				word := round.short(x).ShiftAllRight(16)
				if i+width < end {
					x := get16(a[i+width:]).Mul(times).Sub(less)
					x = weight512(x, low, shift, factor, upper, lower, p0, p1, p2, p3, p4, p5, one)
					sum = sum.Add(x)
					word = word.Or(round.short(x).And(round.upper))
				}
				word.BitsToFloat32().Store(a[to:])
				to += width
			}
			total = total.Add(sum)
		}
		total.Store(sums[from:])
	}
	archsimd.ClearAVXUpperBits()
	return from
}

func expColumns256(a []float32, scale float32, down, sums []float32, rounds bool, from int) {
	all, bits := archsimd.BroadcastFloat32x8, archsimd.BroadcastUint32x8
	low, shift, factor, upper, lower := all(weightLeast), all(shifter), all(log2e), all(log2Upper), all(log2Lower)
	p0, p1, p2, p3, p4, p5, one := all(expP0), all(expP1), all(expP2), all(expP3), all(expP4), all(expP5), all(1)
	bias := archsimd.BroadcastInt32x8(127)
	half, last, quiet := bits(0x7fff), bits(1), bits(1<<22)
	width, times, less, total := len(sums), all(scale), get(down[from:]), get(sums[from:])
	for start := from; start < len(a); start += sumRows * width {
		var sum floats8
		for i := start; i < min(len(a), start+sumRows*width); i += width {
			x := get(a[i:]).Mul(times).Sub(less)
			x = weight256(x, low, shift, factor, upper, lower, p0, p1, p2, p3, p4, p5, one, bias)
			sum = sum.Add(x)
			if rounds {
				x = shortBits(x, half, last, quiet).ShiftAllLeft(16).BitsToFloat32()
			}
			x.Store(a[i:])
		}
		total = total.Add(sum)
	}
	total.Store(sums[from:])
}

func expRowsVectors(a, d []float32, scale float32, down, means []float32, rounds bool) {
	if hasAVX512 && len(a)/len(down)%16 == 0 {
		expRows512(a, d, scale, down, means, rounds)
	} else {
		expRows256(a, d, scale, down, means, rounds)
	}
	archsimd.ClearAVXUpperBits()
}

func expRows512(a, d []float32, scale float32, down, means []float32, rounds bool) {
	all := archsimd.BroadcastFloat32x16
	low, shift, factor, upper, lower := all(weightLeast), all(shifter), all(log2e), all(log2Upper), all(log2Lower)
	p0, p1, p2, p3, p4, p5, one := all(expP0), all(expP1), all(expP2), all(expP3), all(expP4), all(expP5), all(1)
	round := newRounding()
	width, times, hidden := len(a)/len(down), all(scale), all(negInf)
	for row, l := range down {
		less, mean := all(l), all(means[row])
		for i := row * width; i < (row+1)*width; i += 16 {
			score := get16(a[i:])
			seen := score.NotEqual(hidden)
			x := score.Mul(times).Sub(less)
			x = weight512(x, low, shift, factor, upper, lower, p0, p1, p2, p3, p4, p5, one).Masked(seen)
			y := get16(d[i:]).Sub(mean).Mul(x).Mul(times).Masked(seen)
			if rounds {
				x, y = round.float(x), round.float(y)
			}
			x.Store(a[i:])
			y.Store(d[i:])
		}
	}
}

// pairedRowsVectors is expRowsVectors for [Paired].
func pairedRowsVectors(a, d []float32, scale float32, down, means []float32) {
	all := archsimd.BroadcastFloat32x16
	low, shift, factor, upper, lower := all(weightLeast), all(shifter), all(log2e), all(log2Upper), all(log2Lower)
	p0, p1, p2, p3, p4, p5, one := all(expP0), all(expP1), all(expP2), all(expP3), all(expP4), all(expP5), all(1)
	round := newRounding()
	width, times, hidden := len(a)/len(down), all(scale), all(negInf)
	for row := range down {
		less, mean := all(down[row]), all(means[row])
		to := row / 2 * width
		for i := row * width; i < (row+1)*width; i += 16 {
			score := get16(a[i:])
			seen := score.NotEqual(hidden)
			x := score.Mul(times).Sub(less)
			x = weight512(x, low, shift, factor, upper, lower, p0, p1, p2, p3, p4, p5, one).Masked(seen)
			y := get16(d[i:]).Sub(mean).Mul(x).Mul(times).Masked(seen)
			p, q := round.short(x), round.short(y)
			if row%2 == 0 {
				p, q = p.ShiftAllRight(16), q.ShiftAllRight(16)
			} else {
				p = p.And(round.upper).Or(get16(a[to:]).ToBits())
				q = q.And(round.upper).Or(get16(d[to:]).ToBits())
			}
			p.BitsToFloat32().Store(a[to:])
			q.BitsToFloat32().Store(d[to:])
			to += 16
		}
	}
	archsimd.ClearAVXUpperBits()
}

func expRows256(a, d []float32, scale float32, down, means []float32, rounds bool) {
	all, bits := archsimd.BroadcastFloat32x8, archsimd.BroadcastUint32x8
	low, shift, factor, upper, lower := all(weightLeast), all(shifter), all(log2e), all(log2Upper), all(log2Lower)
	p0, p1, p2, p3, p4, p5, one := all(expP0), all(expP1), all(expP2), all(expP3), all(expP4), all(expP5), all(1)
	bias := archsimd.BroadcastInt32x8(127)
	half, last, quiet := bits(0x7fff), bits(1), bits(1<<22)
	width, times, hidden := len(a)/len(down), all(scale), all(negInf)
	for row, l := range down {
		less, mean := all(l), all(means[row])
		for i := row * width; i < (row+1)*width; i += 8 {
			score := get(a[i:])
			seen := score.NotEqual(hidden)
			x := score.Mul(times).Sub(less)
			x = weight256(x, low, shift, factor, upper, lower, p0, p1, p2, p3, p4, p5, one, bias).Masked(seen)
			y := get(d[i:]).Sub(mean).Mul(x).Mul(times).Masked(seen)
			if rounds {
				x = shortBits(x, half, last, quiet).ShiftAllLeft(16).BitsToFloat32()
				y = shortBits(y, half, last, quiet).ShiftAllLeft(16).BitsToFloat32()
			}
			x.Store(a[i:])
			y.Store(d[i:])
		}
	}
}

// weight512 is weight. Below the least number it computes with that one, so that nothing becomes subnormal, and takes 0 in the end.
func weight512(x, low, shift, factor, upper, lower, p0, p1, p2, p3, p4, p5, one floats16) floats16 {
	x = low.IfElse(x.Less(low), x)
	y, n := reduced512(x, shift, factor, upper, lower, p0, p1, p2, p3, p4, p5, one)
	return y.Scale(n).Masked(x.NotEqual(low))
}

// weight256 is weight.
func weight256(x, low, shift, factor, upper, lower, p0, p1, p2, p3, p4, p5, one floats8, bias archsimd.Int32x8) floats8 {
	x = low.IfElse(x.Less(low), x)
	y, shifted := reduced256(x, shift, factor, upper, lower, p0, p1, p2, p3, p4, p5, one)
	// The last bits of the sum with the shifter are those of n, and the others disappear on the left.
	power := shifted.AsInt32x8().Add(bias).ShiftAllLeft(23).AsFloat32x8()
	return y.Mul(power).Masked(x.NotEqual(low))
}
