package loops

// Rope applies rotary position embeddings. x consists of pieces of 2·len(cos) elements. In each,
// the pair of elements i and len(cos)+i is rotated by the angle with cosine cos[i] and sine sin[i],
// or by its negative if back is set. Every product is rounded.
func Rope(dst, x, cos, sin []float32, back bool) {
	for n := len(cos); len(x) > 0; dst, x = dst[2*n:], x[2*n:] {
		for i := rope(dst, x, cos, sin, back); i < n; i++ {
			a, b, c, s := x[i], x[n+i], cos[i], sin[i]
			if back {
				s = -s
			}
			dst[i] = float32(a*c) - float32(b*s)
			dst[n+i] = float32(b*c) + float32(a*s)
		}
	}
}

// RopeAdjacent is like [Rope] but rotates pairs of adjacent elements.
func RopeAdjacent(dst, x, cos, sin []float32, back bool) {
	for n := len(cos); len(x) > 0; dst, x = dst[2*n:], x[2*n:] {
		for i := ropeAdjacent(dst, x, cos, sin, back); i < n; i++ {
			a, b, c, s := x[2*i], x[2*i+1], cos[i], sin[i]
			if back {
				s = -s
			}
			dst[2*i] = float32(a*c) - float32(b*s)
			dst[2*i+1] = float32(b*c) + float32(a*s)
		}
	}
}
