package loops

import (
	"fmt"
	"math"
	"math/bits"
	"math/rand/v2"
	"testing"
)

// TestLoops: vectorized loops give the bits of the plain ones for every length, also in
// the place of an operand, and write nothing behind the end.
func TestLoops(t *testing.T) { withAndWithoutAVX512(t, testLoops) }

// withAndWithoutAVX512 runs a test with the widest vectors of the processor, and with those of AVX2.
func withAndWithoutAVX512(t *testing.T, test func(t *testing.T)) {
	t.Run("widest", test)
	if hasAVX512 {
		hasAVX512 = false
		defer func() { hasAVX512 = true }()
		t.Run("AVX2", test)
	}
}

func testLoops(t *testing.T) {
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
		"add":        {func(d []float32) { add(d, a, b) }, func(d []float32) { plainAdd(d, a, b) }},
		"sub":        {func(d []float32) { sub(d, a, b) }, func(d []float32) { plainSub(d, a, b) }},
		"mul":        {func(d []float32) { mul(d, a, b) }, func(d []float32) { plainMul(d, a, b) }},
		"div":        {func(d []float32) { div(d, a, b) }, func(d []float32) { plainDiv(d, a, b) }},
		"addS":       {func(d []float32) { addS(d, a, s) }, func(d []float32) { plainAddS(d, a, s) }},
		"fromS":      {func(d []float32) { fromS(d, a, s) }, func(d []float32) { plainFromS(d, a, s) }},
		"mulS":       {func(d []float32) { mulS(d, a, s) }, func(d []float32) { plainMulS(d, a, s) }},
		"divS":       {func(d []float32) { divS(d, a, s) }, func(d []float32) { plainDivS(d, a, s) }},
		"intoS":      {func(d []float32) { intoS(d, a, s) }, func(d []float32) { plainIntoS(d, a, s) }},
		"mulMulS":    {func(d []float32) { mulMulS(d, a, b, s) }, func(d []float32) { plainMulMulS(d, a, b, s) }},
		"mulMul":     {func(d []float32) { mulMul(d, a, b, c) }, func(d []float32) { plainMulMul(d, a, b, c) }},
		"intoAddS":   {func(d []float32) { intoAddS(d, a, s, t) }, func(d []float32) { plainIntoAddS(d, a, s, t) }},
		"siluSlope":  {func(d []float32) { siluSlope(d, a, b) }, func(d []float32) { plainSiLUSlope(d, a, b) }},
		"linAdd":     {func(d []float32) { linAdd(d, a, s, b, t) }, func(d []float32) { plainLinAdd(d, a, s, b, t) }},
		"linSub":     {func(d []float32) { linSub(d, a, s, b, t) }, func(d []float32) { plainLinSub(d, a, s, b, t) }},
		"linMul":     {func(d []float32) { linMul(d, a, s, b, c, t) }, func(d []float32) { plainLinMul(d, a, s, b, c, t) }},
		"expLin":     {func(d []float32) { expLin(d, a, s, t) }, func(d []float32) { plainExpLin(d, a, s, t) }},
		"expLin 256": {func(d []float32) { ExpLin(d, a, s, t) }, func(d []float32) { plainExpLin(d, a, s, t) }},
		"sqrtLin":    {func(d []float32) { sqrtLin(d, a, s, t) }, func(d []float32) { plainSqrtLin(d, a, s, t) }},
		"clamp":      {func(d []float32) { clampAll(d, a, s, t) }, func(d []float32) { plainClamp(d, a, s, t) }},
		"selectS":    {func(d []float32) { chooseS(d, a, b, s) }, func(d []float32) { plainSelectS(d, a, b, s) }},
		"selectSS":   {func(d []float32) { chooseSS(d, a, s, t) }, func(d []float32) { plainSelectSS(d, a, s, t) }},
		"clamp 256":  {func(d []float32) { Clamp(d, a, s, t) }, func(d []float32) { plainClamp(d, a, s, t) }},
		"select S":   {func(d []float32) { SelectS(d, a, b, s) }, func(d []float32) { plainSelectS(d, a, b, s) }},
		"roundMulS":  {func(d []float32) { RoundMulS(d, a, s) }, func(d []float32) { plainRoundSmall(d, a); plainMulS(d, d, s) }},
		"near": {func(d []float32) { Near(d, a, b, s) }, func(d []float32) {
			plainSub(d, a, b)
			plainUnary(Abs, d, d)
			plainBinaryS(Le, d, d, s)
		}},
		"sSelect":    {func(d []float32) { sChoose(d, a, s, b) }, func(d []float32) { plainSSelect(d, a, s, b) }},
		"roundSmall": {func(d []float32) { roundSmall(d, a) }, func(d []float32) { plainRoundSmall(d, a) }},
		"fill":       {func(d []float32) { fill(d, s) }, func(d []float32) { plainFill(d, s) }},
		"select":     {func(d []float32) { choose(d, a, b, c) }, func(d []float32) { plainSelect(d, a, b, c) }},
	}
	for op := Neg; op < Count; op++ {
		if op >= And && op < NegBits {
			continue
		}
		loops[fmt.Sprint("one ", op)] = pair{func(d []float32) { Unary(op, d, a) }, func(d []float32) { plainUnary(op, d, a) }}
	}
	for op := Add; op < NegBits; op++ {
		if op >= Neg && op < And {
			continue
		}
		loops[fmt.Sprint("two ", op)] = pair{func(d []float32) { Binary(op, d, a, b) }, func(d []float32) { plainBinary(op, d, a, b) }}
		loops[fmt.Sprint("two, S ", op)] = pair{func(d []float32) { BinaryS(op, d, a, s) }, func(d []float32) { plainBinaryS(op, d, a, s) }}
		loops[fmt.Sprint("S, two ", op)] = pair{func(d []float32) { SBinary(op, d, s, b) }, func(d []float32) { plainSBinary(op, d, s, b) }}
	}
	lanesOf := func(f func(l *Lanes)) func(d []float32) {
		return func(d []float32) {
			var l Lanes
			f(&l)
			copy(d, l[:])
		}
	}
	loops["sum"] = pair{lanesOf(func(l *Lanes) { sum(l, a) }), lanesOf(func(l *Lanes) { plainSum(l, a) })}
	loops["sumMul"] = pair{lanesOf(func(l *Lanes) { sumMul(l, a, b) }), lanesOf(func(l *Lanes) { plainSumMul(l, a, b) })}
	loops["sumDiff"] = pair{lanesOf(func(l *Lanes) { sumDiff(l, a, b) }), lanesOf(func(l *Lanes) { plainSumDiff(l, a, b) })}
	return loops
}

// TestGroups: sums and extremes of groups have the bits of the plain loops, for all sizes.
func TestGroups(t *testing.T) {
	rng := rand.New(rand.NewPCG(8, 9))
	inf := float32(math.Inf(1))
	special := []float32{0, float32(math.Copysign(0, -1)), 1e-45, math.MaxFloat32, inf, -inf, float32(math.NaN())}
	for size := 1; size < 300; size++ {
		const groups = 9
		a, b := make([]float32, groups*size), make([]float32, groups*size)
		for i := range a {
			a[i], b[i] = float32(rng.NormFloat64()), float32(rng.NormFloat64())
			if rng.IntN(2*size) == 0 {
				a[i] = special[rng.IntN(len(special))]
			}
		}
		for name, f := range map[string][2]func(d []float32){
			"sum":     {func(d []float32) { GroupFold(Add, d, a, size) }, func(d []float32) { plainGroupSum(d, a, size) }},
			"max":     {func(d []float32) { GroupFold(Max, d, a, size) }, func(d []float32) { plainGroupExtreme(Max, d, a, size) }},
			"min":     {func(d []float32) { GroupFold(Min, d, a, size) }, func(d []float32) { plainGroupExtreme(Min, d, a, size) }},
			"sumMul":  {func(d []float32) { GroupSumMul(d, a, b, size) }, func(d []float32) { plainGroupSumMul(d, a, b, size) }},
			"largest": {func(d []float32) { GroupLargest(d, a, size) }, func(d []float32) { plainGroupLargest(d, a, size) }},
		} {
			got, want := make([]float32, groups), make([]float32, groups)
			f[0](got)
			f[1](want)
			if i := differs(got, want); i >= 0 {
				t.Fatalf("%s of %d: group %d is %v, want %v", name, size, i, got[i], want[i])
			}
		}
	}
}

// TestExp: exponentials and hyperbolic tangents are within two units of the last place, and right at the ends.
func TestExp(t *testing.T) {
	ulps := func(got float32, want float64) float64 {
		unit := math.Abs(float64(math.Nextafter32(float32(want), 0)) - float64(float32(want)))
		return math.Abs(float64(got)-want) / max(unit, 0x1p-149)
	}
	worst := map[string]float64{}
	for i := range 4_000_000 {
		x := -104 + 193*float32(i)/4_000_000
		if want := math.Exp(float64(x)); want < math.MaxFloat32 {
			worst["exp"] = max(worst["exp"], ulps(exp(x), want))
		}
		x *= 0.1
		worst["tanh"] = max(worst["tanh"], ulps(tanh(x), math.Tanh(float64(x))))
	}
	t.Log(worst)
	if worst["exp"] > 2 || worst["tanh"] > 2 {
		t.Errorf("errors of %v units in the last place, want at most 2", worst)
	}
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	got := []float32{exp(inf), exp(-inf), exp(0), exp(88.8), exp(-105), exp(nan), tanh(inf), tanh(-inf), tanh(0), tanh(nan), tanh(1e-40)}
	if i := differs(got, []float32{inf, 0, 1, inf, 0, nan, 1, -1, 0, nan, 1e-40}); i >= 0 {
		t.Errorf("number %d is %v", i, got[i])
	}
}

// TestExponents: ldexp rounds once, and logb reads subnormal numbers.
func TestExponents(t *testing.T) {
	for _, x := range []float32{1, -3.7, 1e-45, 1.1754944e-38, math.MaxFloat32, 0, float32(math.Inf(-1)), float32(math.NaN())} {
		if got, want := One(Logb, x), float32(math.Logb(float64(x))); got != want && want == want {
			t.Errorf("logb of %v is %v, want %v", x, got, want)
		}
		for n := -300; n <= 300; n++ {
			if got, want := Two(Ldexp, x, float32(n)), float32(math.Ldexp(float64(x), n)); got != want && want == want {
				t.Errorf("%v·2^%d is %v, want %v", x, n, got, want)
			}
		}
	}
}

// TestMemory: loops between memory and floats have the results of the plain ones, for every length, and write nothing behind
// the end.
func TestMemory(t *testing.T) { withAndWithoutAVX512(t, testMemory) }

func testMemory(t *testing.T) {
	rng := rand.New(rand.NewPCG(11, 12))
	for n := range 100 {
		a, whole, short, bools := make([]float32, n), make([]float32, n), make([]uint16, n), make([]bool, n)
		for i := range a {
			a[i], whole[i], short[i], bools[i] = math.Float32frombits(rng.Uint32()), float32(rng.IntN(256)-128), uint16(rng.Uint32()), rng.IntN(2) == 0
			switch rng.IntN(8) {
			case 0:
				a[i] = 0
			case 1:
				a[i] = math.Float32frombits(0x7f800000 | uint32(rng.IntN(2)))
			case 2:
				a[i] = math.Float32frombits(rng.Uint32()&^0xffff | 0x8000)
			}
		}
		sameLoop(t, n, func(d []float32) { FromBFloat16(d, short) }, func(d []float32) { plainFromBFloat16(d, short) })
		sameLoop(t, n, func(d []uint16) { ToBFloat16(d, a) }, func(d []uint16) { plainToBFloat16(d, a) })
		sameLoop(t, n, func(d []float32) { RoundToBFloat16(d, a) }, func(d []float32) { plainRoundToBFloat16(d, a) })
		sameLoop(t, n, func(d []float32) { FromBools(d, bools) }, func(d []float32) { plainFromBools(d, bools) })
		sameLoop(t, n, func(d []bool) { ToBools(d, a) }, func(d []bool) { plainToBools(d, a) })
		sameLoop(t, n, func(d []int8) { ToInt8(d, whole) }, func(d []int8) { plainToInt8(d, whole) })
	}
}

// TestSpread: every element, as often as it is to be.
func TestSpread(t *testing.T) {
	for n := range 40 {
		for times := 1; times < 70; times++ {
			a, got := make([]float32, n), make([]float32, n*times+1)
			for i := range a {
				a[i] = float32(i + 1)
			}
			Spread(got[:n*times], a, times)
			for i, x := range got[:n*times] {
				if x != a[i/times] {
					t.Fatalf("%d elements, %d times: element %d is %v", n, times, i, x)
				}
			}
			if got[n*times] != 0 {
				t.Fatalf("%v is written behind the end", got[n*times])
			}
		}
	}
}

func sameLoop[T comparable](t *testing.T, n int, loop, plain func(d []T)) {
	t.Helper()
	got, want := make([]T, n+20), make([]T, n+20)
	loop(got[:n])
	plain(want[:n])
	for i := range got {
		if got[i] != want[i] && want[i] == want[i] {
			t.Fatalf("element %d of %d is %v, want %v", i, n, got[i], want[i])
		}
	}
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

// TestRotate: blocks of every size are multiplied by the matrix, in another place and in
// their own.
func TestRotate(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for block := 1; block <= 2048; block *= 2 {
		t.Run(fmt.Sprint(block), func(t *testing.T) {
			a := make([]float32, max(2048, 3*block)/block*block)
			for i := range a {
				a[i] = float32(rng.NormFloat64())
			}
			got := make([]float32, len(a))
			Rotate(got, a, block)
			for i := range a {
				first, want, norm := i/block*block, 0.0, 0.0
				for j, x := range a[first : first+block] {
					sign := 1 - 2*float64(bits.OnesCount(uint((i-first)&j))%2)
					want += sign * float64(x) / math.Sqrt(float64(block))
					norm += float64(x) * float64(x)
				}
				if math.Abs(float64(got[i])-want) > 5e-7*math.Sqrt(norm) {
					t.Fatalf("element %d is %v, want %v", i, got[i], want)
				}
			}
			Rotate(a, a, block)
			if i := differs(a, got); i >= 0 {
				t.Fatalf("in its place, element %d is %v, want %v", i, a[i], got[i])
			}
		})
	}
}

// TestRotateLoops: the vectorized loops have the bits of the plain ones, special numbers
// included.
func TestRotateLoops(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	special := []float32{0, float32(math.Copysign(0, -1)), 1e-45, -1e-39, math.MaxFloat32, float32(math.Inf(1)), float32(math.NaN())}
	for n := run; n < 40*run; n += run {
		a, b := make([]float32, n), make([]float32, n)
		for i := range a {
			a[i], b[i] = float32(rng.NormFloat64()), float32(rng.NormFloat64())
			if rng.IntN(2*n) < 3 {
				a[i] = special[rng.IntN(len(special))]
			}
		}
		for size := 1; size <= run; size *= 2 {
			got, want := make([]float32, n), make([]float32, n)
			rotateRuns(got, a, size, 0.3)
			plainRotateRuns(want, a, size, 0.3)
			if i := differs(got, want); i >= 0 {
				t.Fatalf("runs of %d, element %d of %d is %v, want %v", size, i, n, got[i], want[i])
			}
		}
		if want := make([]float32, n); hasAVX2 {
			got := make([]float32, n)
			rotate16s(got, a, 0.3)
			plainRotateRuns(want, a, run, 0.3)
			if i := differs(got, want); i >= 0 {
				t.Fatalf("runs of 16, element %d of %d is %v, want %v", i, n, got[i], want[i])
			}
			rotate64s(got, a, 0.3)
			for at := 0; at+64 <= n; at += 64 {
				plainButterflies(want[at:at+16], want[at+16:at+32], want[at+32:at+48], want[at+48:at+64])
			}
			if i := differs(got, want[:n/64*64]); i >= 0 {
				t.Fatalf("runs of 64, element %d of %d is %v, want %v", i, n, got[i], want[i])
			}
		}
		x, y, p, q := append([]float32(nil), a...), append([]float32(nil), b...), append([]float32(nil), a...), append([]float32(nil), b...)
		butterfly(x, y)
		plainButterfly(p, q)
		if differs(x, p) >= 0 || differs(y, q) >= 0 {
			t.Fatalf("butterflies of %d elements differ", n)
		}
		c, d := append([]float32(nil), a...), append([]float32(nil), b...)
		butterflies(x, y, a, b)
		plainButterflies(p, q, c, d)
		if differs(x, p) >= 0 || differs(y, q) >= 0 || differs(a, c) >= 0 || differs(b, d) >= 0 {
			t.Fatalf("double butterflies of %d elements differ", n)
		}
	}
}

func BenchmarkRotate(b *testing.B) {
	a := make([]float32, 2048)
	for i := range a {
		a[i] = float32(i % 7)
	}
	b.SetBytes(4 * 2048)
	for b.Loop() {
		Rotate(a, a, 128)
	}
}
