package loops

import "math"

// block is a multiple of the vector width of every processor.
const block = 64

// Lanes holds the partial results of a reduction by [Add], [Max] or [Min]. Element i of a tile goes
// to lane i modulo 64, so that the result does not depend on the vector width. Each lane adds only
// a few elements.
type Lanes [block]float32

// Sum adds elements to the lanes.
func (l *Lanes) Sum(a []float32) {
	for i := sum(l, a); i < len(a); i++ {
		l[i%block] += a[i]
	}
}

// SumMul adds the products of the elements of a and b to the lanes.
func (l *Lanes) SumMul(a, b []float32) {
	for i := sumMul(l, a, b); i < len(a); i++ {
		l[i%block] += float32(a[i] * b[i])
	}
}

// Extreme combines elements into the lanes by maximum or minimum.
func (l *Lanes) Extreme(op Op, a []float32) {
	for len(a) > 0 {
		n := min(block, len(a))
		Binary(op, l[:n], l[:n], a[:n])
		a = a[n:]
	}
}

// Reset sets every lane to the neutral element of the operation.
func (l *Lanes) Reset(op Op) {
	if op == Add {
		*l = Lanes{}
		return
	}
	Fill(l[:], Neutral(op))
}

// Fold reduces the lanes to one number: it combines the two halves until 16 lanes are left, then
// combines these in float64.
func (l *Lanes) Fold(op Op) float64 {
	const last = 16
	for n := block / 2; n >= last; n /= 2 {
		Binary(op, l[:n], l[:n], l[n:2*n])
	}
	total := float64(Neutral(op))
	for _, x := range l[:last] {
		total = Join(op, total, float64(x))
	}
	return total
}

// Neutral returns the neutral element of a reduction.
func Neutral(op Op) float32 {
	switch op {
	case Max:
		return float32(math.Inf(-1))
	case Min:
		return float32(math.Inf(1))
	}
	return 0
}

// Join combines two numbers. Like Go's max and min, it returns NaN if either is NaN.
func Join(op Op, x, y float64) float64 {
	switch op {
	case Max:
		return max(x, y)
	case Min:
		return min(x, y)
	}
	return x + y
}
