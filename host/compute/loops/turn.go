package loops

// Turn turns the points in each piece of 2·len(cos) elements of x: the first half of a piece are first coordinates, the second half
// second ones, and point i turns by the angle with cos[i] and sin[i], or back. Every product is rounded.
func Turn(dst, x, cos, sin []float32, back bool) {
	turn(dst, x, cos, sin, back)
	done()
}

// turnFrom turns the points of the first piece from one on.
func turnFrom(i int, dst, x, cos, sin []float32, back bool) {
	n := len(cos)
	for ; i < n; i++ {
		a, b, c, s := x[i], x[n+i], cos[i], sin[i]
		if back {
			s = -s
		}
		dst[i] = float32(a*c) - float32(b*s)
		dst[n+i] = float32(b*c) + float32(a*s)
	}
}

// TurnNeighbours is [Turn] for points whose two coordinates are neighbours.
func TurnNeighbours(dst, x, cos, sin []float32, back bool) {
	n, first := len(cos), 0
	if hasAVX512 {
		first = turnNeighbours512(dst, x, cos, sin, back)
	}
	for ; len(x) > 0 && first < n; dst, x = dst[2*n:], x[2*n:] {
		i := first
		if hasAVX2 {
			i = n &^ 7
			turnNeighbours256(dst[2*first:2*i], x[2*first:], cos[first:], sin[first:], back)
		}
		turnNeighboursFrom(i, dst, x, cos, sin, back)
	}
	done()
}

// turnNeighboursFrom turns the points of the first piece from one on.
func turnNeighboursFrom(i int, dst, x, cos, sin []float32, back bool) {
	for ; i < len(cos); i++ {
		a, b, c, s := x[2*i], x[2*i+1], cos[i], sin[i]
		if back {
			s = -s
		}
		dst[2*i] = float32(a*c) - float32(b*s)
		dst[2*i+1] = float32(b*c) + float32(a*s)
	}
}
