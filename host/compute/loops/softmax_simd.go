//go:build goexperiment.simd

package loops

import (
	"math"
	"simd"
)

func maxColumns(most, a []float32) (from int) {
	width := simd.Float32s{}.Len()
	// two vectors at a time, because each maximum waits for the previous one
	for ; from+2*width <= len(most); from += 2 * width {
		x, y := simd.LoadFloat32s(most[from:]), simd.LoadFloat32s(most[from+width:])
		for i := from; i+2*width <= len(a); i += len(most) {
			x, y = simd.LoadFloat32s(a[i:]).Max(x), simd.LoadFloat32s(a[i+width:]).Max(y)
		}
		x.Store(most[from:])
		y.Store(most[from+width:])
	}
	done()
	return from
}

func expColumns(a []float32, scale float32, down, sums []float32, form Form) (from int) {
	lanes, width, all := simd.Float32s{}.Len(), len(sums), simd.BroadcastFloat32s
	low, shift, factor, upper, lower := all(weightLeast), all(shifter), all(log2e), all(log2Upper),
		all(log2Lower)
	p0, p1, p2, p3, p4, p5, one := all(expP0), all(expP1), all(expP2), all(expP3), all(expP4),
		all(expP5), all(1)
	times, bias, high := all(scale), simd.BroadcastInt32s(127), simd.BroadcastUint32s(upperHalf)
	var first simd.Uint32s // results of the first row of a pair
	for ; from+lanes <= width; from += lanes {
		less, total := simd.LoadFloat32s(down[from:]), simd.LoadFloat32s(sums[from:])
		to, odd := from, false
		for start := from; start < len(a); start += sumRows * width {
			var sum simd.Float32s
			end := min(len(a), start+sumRows*width)
			for i := start; i < end; i += width {
				x := simd.LoadFloat32s(a[i:]).Mul(times).Sub(less)
				x = low.IfElse(x.Less(low), x)
				y, shifted := reduced(x, shift, factor, upper, lower, p0, p1, p2, p3, p4, p5, one)
				y = y.Mul(shifted.ToBits().BitsToInt32().Add(bias).ShiftAllLeft(23).ToBits().BitsToFloat32())
				x = y.Masked(x.NotEqual(low))
				sum = sum.Add(x)
				if form != Paired {
					if form == Rounded {
						x = rounded(x).And(high).BitsToFloat32()
					}
					x.Store(a[i:])
					continue
				}
				if !odd {
					first = rounded(x).ShiftAllRight(16)
					first.BitsToFloat32().Store(a[to:])
				} else {
					rounded(x).And(high).Or(first).BitsToFloat32().Store(a[to:])
					to += width
				}
				odd = !odd
			}
			total = total.Add(sum)
		}
		total.Store(sums[from:])
	}
	done()
	return from
}

// expRows computes [ExpRows] and returns true if rows consist of whole vectors, else does nothing.
func expRows(a, d []float32, scale float32, down, means []float32, form Form) bool {
	lanes, width, all := simd.Float32s{}.Len(), len(a)/len(down), simd.BroadcastFloat32s
	if width%lanes != 0 {
		return false
	}
	low, shift, factor, upper, lower := all(weightLeast), all(shifter), all(log2e), all(log2Upper),
		all(log2Lower)
	c0, c1, c2, c3, c4, c5, one := all(expP0), all(expP1), all(expP2), all(expP3), all(expP4),
		all(expP5), all(1)
	times, bias, high := all(scale), simd.BroadcastInt32s(127), simd.BroadcastUint32s(upperHalf)
	hidden := all(float32(math.Inf(-1)))
	for row := range down {
		less, mean := all(down[row]), all(means[row])
		x0, y0 := a[row*width:(row+1)*width], d[row*width:(row+1)*width]
		p0, q0 := x0, y0 // where results are written
		if form == Paired {
			p0, q0 = a[row/2*width:][:width], d[row/2*width:][:width]
		}
		y0, p0, q0 = y0[:len(x0)], p0[:len(x0)], q0[:len(x0)]
		for i := 0; i <= len(x0)-lanes; i += lanes {
			score := simd.LoadFloat32s(x0[i:])
			seen := score.NotEqual(hidden)
			x := score.Mul(times).Sub(less)
			x = low.IfElse(x.Less(low), x)
			y, shifted := reduced(x, shift, factor, upper, lower, c0, c1, c2, c3, c4, c5, one)
			y = y.Mul(shifted.ToBits().BitsToInt32().Add(bias).ShiftAllLeft(23).ToBits().BitsToFloat32())
			x = y.Masked(x.NotEqual(low)).Masked(seen)
			y = simd.LoadFloat32s(y0[i:]).Sub(mean).Mul(x).Mul(times).Masked(seen)
			switch {
			case form == Rounded:
				x, y = rounded(x).And(high).BitsToFloat32(), rounded(y).And(high).BitsToFloat32()
			case form == Paired && row%2 == 0:
				x, y = rounded(x).ShiftAllRight(16).BitsToFloat32(),
					rounded(y).ShiftAllRight(16).BitsToFloat32()
			case form == Paired:
				x = rounded(x).And(high).Or(simd.LoadFloat32s(p0[i:]).ToBits()).BitsToFloat32()
				y = rounded(y).And(high).Or(simd.LoadFloat32s(q0[i:]).ToBits()).BitsToFloat32()
			}
			x.Store(p0[i:])
			y.Store(q0[i:])
		}
	}
	done()
	return true
}
