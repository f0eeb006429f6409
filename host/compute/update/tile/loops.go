package tile

import "math"

// interpret runs code on one tile, with the slots v and the scalars env, and adds to the
// lanes of reductions.
func interpret(code []instruction, v [][]float32, env []float32, sums []lanes) {
	for i := range code {
		ins := &code[i]
		switch ins.op {
		case opSum:
			sum(&sums[ins.s], v[ins.a])
		case opSumMul:
			sumMul(&sums[ins.s], v[ins.a], v[ins.b])
		case opSumDiff:
			sumDiff(&sums[ins.s], v[ins.a], v[ins.b])
		case opLargest:
			extreme(opMax, &sums[ins.s], v[ins.a])
		case opSmallest:
			extreme(opMin, &sums[ins.s], v[ins.a])
		case opSelectS:
			if env[ins.s] != 0 {
				v[ins.dst] = v[ins.a]
			} else {
				v[ins.dst] = v[ins.b]
			}
		case opSelectZ:
			v[ins.dst] = v[ins.a]
			if env[ins.s] == 0 {
				v[ins.dst] = v[ins.c]
				fill(v[ins.dst], env[ins.t])
			}
		case opRotate:
			rotate(v[ins.dst], v[ins.a], ins.t)
		default:
			ins.compute(v, env)
		}
	}
}

// compute runs an elementwise operation.
func (ins *instruction) compute(v [][]float32, env []float32) {
	dst, a, b, s, t := v[ins.dst], v[ins.a], v[ins.b], env[ins.s], env[ins.t]
	switch ins.op {
	case opFill:
		fill(dst, s)
	case opCopy:
		copy(dst, a)
	case opAdd:
		add(dst, a, b)
	case opAddS:
		addS(dst, a, s)
	case opSub:
		sub(dst, a, b)
	case opSubS:
		addS(dst, a, -s)
	case opFromS:
		fromS(dst, a, s)
	case opMul:
		mul(dst, a, b)
	case opMulS:
		mulS(dst, a, s)
	case opDiv:
		div(dst, a, b)
	case opDivS:
		divS(dst, a, s)
	case opIntoS:
		intoS(dst, a, s)
	case opClamp:
		clampAll(dst, a, s, t)
	case opSelect:
		choose(dst, a, b, v[ins.c])
	case opMulMulS:
		mulMulS(dst, a, b, s)
	case opLinAdd:
		linAdd(dst, a, s, b, t)
	case opLinSub:
		linSub(dst, a, s, b, t)
	case opLinMul:
		linMul(dst, a, s, b, v[ins.c], t)
	case opSqrtLin:
		sqrtLin(dst, a, s, t)
	case opMax, opMin, opPow, opEq, opNe, opLt, opLe:
		binaryAll(ins.op, dst, a, b)
	default:
		unaryAll(ins.op, dst, a)
	}
}

// Loops over elements in plain Go. The vectorized loops use them for the elements that do
// not fill a vector. Operands are at least as long as dst, which may be one of them.

func plainAdd(dst, a, b []float32) {
	for i := range dst {
		dst[i] = a[i] + b[i]
	}
}

func plainSub(dst, a, b []float32) {
	for i := range dst {
		dst[i] = a[i] - b[i]
	}
}

func plainMul(dst, a, b []float32) {
	for i := range dst {
		dst[i] = a[i] * b[i]
	}
}

func plainDiv(dst, a, b []float32) {
	for i := range dst {
		dst[i] = a[i] / b[i]
	}
}

func plainAddS(dst, a []float32, s float32) {
	for i := range dst {
		dst[i] = a[i] + s
	}
}

func plainFromS(dst, a []float32, s float32) {
	for i := range dst {
		dst[i] = s - a[i]
	}
}

func plainMulS(dst, a []float32, s float32) {
	for i := range dst {
		dst[i] = a[i] * s
	}
}

func plainDivS(dst, a []float32, s float32) {
	for i := range dst {
		dst[i] = a[i] / s
	}
}

func plainIntoS(dst, a []float32, s float32) {
	for i := range dst {
		dst[i] = s / a[i]
	}
}

func plainMulMulS(dst, a, b []float32, s float32) {
	for i := range dst {
		dst[i] = float32(a[i]*b[i]) * s
	}
}

func plainLinAdd(dst, a []float32, s float32, b []float32, t float32) {
	for i := range dst {
		dst[i] = float32(a[i]*s) + float32(b[i]*t)
	}
}

func plainLinSub(dst, a []float32, s float32, b []float32, t float32) {
	for i := range dst {
		dst[i] = float32(a[i]*s) - float32(b[i]*t)
	}
}

func plainLinMul(dst, a []float32, s float32, b, c []float32, t float32) {
	for i := range dst {
		dst[i] = float32(a[i]*s) + float32(float32(b[i]*c[i])*t)
	}
}

func plainSqrtLin(dst, a []float32, s, t float32) {
	for i := range dst {
		dst[i] = float32(float32(math.Sqrt(float64(a[i])))*s) + t
	}
}

func plainClamp(dst, a []float32, lo, hi float32) {
	for i := range dst {
		dst[i] = clamp(a[i], lo, hi)
	}
}

func plainSelect(dst, c, a, b []float32) {
	for i := range dst {
		if c[i] != 0 {
			dst[i] = a[i]
		} else {
			dst[i] = b[i]
		}
	}
}

func plainUnary(op opcode, dst, a []float32) {
	for i := range dst {
		dst[i] = unary(op, a[i])
	}
}

func plainBinary(op opcode, dst, a, b []float32) {
	for i := range dst {
		dst[i] = binary(op, a[i], b[i])
	}
}

func fill(dst []float32, s float32) {
	for i := range dst {
		dst[i] = s
	}
}

// block is a whole number of vectors, however wide a processor's are.
const block = 64

// lanes hold an unfinished reduction of a tile. Element i is added to lane i modulo block, so
// that the result does not depend on the width of vectors, and a lane adds few elements.
type lanes [block]float32

func plainSum(l *lanes, a []float32) {
	for i, x := range a {
		l[i%block] += x
	}
}

func plainSumMul(l *lanes, a, b []float32) {
	for i, x := range a {
		l[i%block] += float32(x * b[i])
	}
}

func plainSumDiff(l *lanes, a, b []float32) {
	for i, x := range a {
		e := x - b[i]
		l[i%block] += float32(e * e)
	}
}

// extreme folds by maximum or minimum.
func extreme(op opcode, l *lanes, a []float32) {
	for len(a) > 0 {
		n := min(block, len(a))
		binaryAll(op, l[:n], l[:n], a[:n])
		a = a[n:]
	}
}

// reset sets every lane to the neutral element.
func (l *lanes) reset(op opcode) {
	if op == opSum {
		*l = lanes{}
		return
	}
	fill(l[:], neutral(op))
}

// fold reduces the lanes: it combines halves until 16 are left, and these in binary64.
func (l *lanes) fold(op opcode) float64 {
	const last = 16
	for n := block / 2; n >= last; n /= 2 {
		if op == opSum {
			plainAdd(l[:n], l[:n], l[n:2*n])
		} else {
			plainBinary(elementFold[op], l[:n], l[:n], l[n:2*n])
		}
	}
	total := float64(neutral(op))
	for _, x := range l[:last] {
		total = join(op, total, float64(x))
	}
	return total
}

// elementFold has the operations on two elements that extremes are reduced by.
var elementFold = map[opcode]opcode{opLargest: opMax, opSmallest: opMin}

// neutral is the neutral element of a reduction.
func neutral(op opcode) float32 {
	switch op {
	case opLargest:
		return float32(math.Inf(-1))
	case opSmallest:
		return float32(math.Inf(1))
	}
	return 0
}

// join combines two elements. Go's max and min return NaN if either is NaN.
func join(op opcode, x, y float64) float64 {
	switch op {
	case opLargest:
		return max(x, y)
	case opSmallest:
		return min(x, y)
	}
	return x + y
}
