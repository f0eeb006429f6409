package loops

// Turn turns the points in each piece of 2·len(cos) elements of x: the first half of a piece are
// first coordinates, the second half second ones, and point i turns by the angle with cos[i] and
// sin[i], or back. Every product is rounded.
func Turn(dst, x, cos, sin []float32, back bool) {
	for n := len(cos); len(x) > 0; dst, x = dst[2*n:], x[2*n:] {
		for i := turn(dst, x, cos, sin, back); i < n; i++ {
			a, b, c, s := x[i], x[n+i], cos[i], sin[i]
			if back {
				s = -s
			}
			dst[i] = float32(a*c) - float32(b*s)
			dst[n+i] = float32(b*c) + float32(a*s)
		}
	}
}

// TurnNeighbours is [Turn] for points whose two coordinates are neighbours.
func TurnNeighbours(dst, x, cos, sin []float32, back bool) {
	for n := len(cos); len(x) > 0; dst, x = dst[2*n:], x[2*n:] {
		for i := turnNeighbours(dst, x, cos, sin, back); i < n; i++ {
			a, b, c, s := x[2*i], x[2*i+1], cos[i], sin[i]
			if back {
				s = -s
			}
			dst[2*i] = float32(a*c) - float32(b*s)
			dst[2*i+1] = float32(b*c) + float32(a*s)
		}
	}
}
