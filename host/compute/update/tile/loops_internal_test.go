package tile

import (
	"math"
	"math/rand/v2"
	"testing"
)

// TestLoops: vectorized loops give the bits of the plain ones for every length, also in
// the place of an operand, and write nothing behind the end.
func TestLoops(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	special := []float32{0, float32(math.Copysign(0, -1)), 1, -1, 0.5, 2.5, -3.5, 1e-45, -1e-39, 8388607.5, -8388607.5, 8388609, 4194304.5, math.MaxFloat32, float32(math.Inf(1)), float32(math.Inf(-1)), float32(math.NaN())}
	draw := func(n int) []float32 {
		list := make([]float32, n)
		for i := range list {
			list[i] = float32(rng.NormFloat64())
			if rng.IntN(2) == 0 {
				list[i] = special[rng.IntN(len(special))]
			}
		}
		return list
	}
	for n := range 270 {
		a, b, c, s := draw(n), draw(n), draw(n), draw(2)
		for name, loop := range vectorAndPlain(a, b, c, s[0], s[1]) {
			got, want := make([]float32, n+1), make([]float32, n)
			got[n] = 77
			loop[0](got[:n])
			loop[1](want)
			if i := differs(got, want); i >= 0 || got[n] != 77 {
				t.Fatalf("%s of %d elements: element %d is %v, want %v (behind it: %v)", name, n, i, got[max(i, 0)], want[max(i, 0)], got[n])
			}
		}
		x, y := append([]float32(nil), a...), make([]float32, n)
		linMul(x, x, s[0], b, x, s[1])
		plainLinMul(y, a, s[0], b, a, s[1])
		if i := differs(x, y); i >= 0 {
			t.Fatalf("in place, %d elements: element %d is %v, want %v", n, i, x[i], y[i])
		}
	}
}

// vectorAndPlain are the two forms of every loop.
func vectorAndPlain(a, b, c []float32, s, t float32) map[string][2]func(dst []float32) {
	type pair = [2]func(d []float32)
	loops := map[string]pair{
		"add":     {func(d []float32) { add(d, a, b) }, func(d []float32) { plainAdd(d, a, b) }},
		"sub":     {func(d []float32) { sub(d, a, b) }, func(d []float32) { plainSub(d, a, b) }},
		"mul":     {func(d []float32) { mul(d, a, b) }, func(d []float32) { plainMul(d, a, b) }},
		"div":     {func(d []float32) { div(d, a, b) }, func(d []float32) { plainDiv(d, a, b) }},
		"addS":    {func(d []float32) { addS(d, a, s) }, func(d []float32) { plainAddS(d, a, s) }},
		"fromS":   {func(d []float32) { fromS(d, a, s) }, func(d []float32) { plainFromS(d, a, s) }},
		"mulS":    {func(d []float32) { mulS(d, a, s) }, func(d []float32) { plainMulS(d, a, s) }},
		"divS":    {func(d []float32) { divS(d, a, s) }, func(d []float32) { plainDivS(d, a, s) }},
		"intoS":   {func(d []float32) { intoS(d, a, s) }, func(d []float32) { plainIntoS(d, a, s) }},
		"mulMulS": {func(d []float32) { mulMulS(d, a, b, s) }, func(d []float32) { plainMulMulS(d, a, b, s) }},
		"linAdd":  {func(d []float32) { linAdd(d, a, s, b, t) }, func(d []float32) { plainLinAdd(d, a, s, b, t) }},
		"linSub":  {func(d []float32) { linSub(d, a, s, b, t) }, func(d []float32) { plainLinSub(d, a, s, b, t) }},
		"linMul":  {func(d []float32) { linMul(d, a, s, b, c, t) }, func(d []float32) { plainLinMul(d, a, s, b, c, t) }},
		"sqrtLin": {func(d []float32) { sqrtLin(d, a, s, t) }, func(d []float32) { plainSqrtLin(d, a, s, t) }},
		"clamp":   {func(d []float32) { clampAll(d, a, s, t) }, func(d []float32) { plainClamp(d, a, s, t) }},
		"select":  {func(d []float32) { choose(d, a, b, c) }, func(d []float32) { plainSelect(d, a, b, c) }},
	}
	for name, op := range map[string]opcode{"neg": opNeg, "abs": opAbs, "sign": opSign, "sqrt": opSqrt, "floor": opFloor, "round": opRound, "finite": opIsFinite, "log": opLog} {
		loops[name] = pair{func(d []float32) { unaryAll(op, d, a) }, func(d []float32) { plainUnary(op, d, a) }}
	}
	for name, op := range map[string]opcode{"max": opMax, "min": opMin, "eq": opEq, "ne": opNe, "lt": opLt, "le": opLe, "pow": opPow} {
		loops[name] = pair{func(d []float32) { binaryAll(op, d, a, b) }, func(d []float32) { plainBinary(op, d, a, b) }}
	}
	lanesOf := func(f func(l *lanes)) func(d []float32) {
		return func(d []float32) {
			var l lanes
			f(&l)
			copy(d, l[:])
		}
	}
	loops["sum"] = pair{lanesOf(func(l *lanes) { sum(l, a) }), lanesOf(func(l *lanes) { plainSum(l, a) })}
	loops["sumMul"] = pair{lanesOf(func(l *lanes) { sumMul(l, a, b) }), lanesOf(func(l *lanes) { plainSumMul(l, a, b) })}
	loops["sumDiff"] = pair{lanesOf(func(l *lanes) { sumDiff(l, a, b) }), lanesOf(func(l *lanes) { plainSumDiff(l, a, b) })}
	return loops
}

// differs is the first position with other bits, -1 if there is none; all NaN are one.
func differs(got, want []float32) int {
	for i, w := range want {
		if math.Float32bits(got[i]) != math.Float32bits(w) && !(got[i] != got[i] && w != w) {
			return i
		}
	}
	return -1
}
