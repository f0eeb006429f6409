package loops

import (
	"fmt"
	"math"
	"math/bits"
	"math/rand/v2"
	"slices"
	"testing"
)

// TestLoops checks that, for every length, loops give the same bits as for single elements, also
// when the result overwrites an operand, and write nothing beyond the end.
func TestLoops(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	special := []float32{0, float32(math.Copysign(0, -1)), 1, -1, 0.5, 2.5, -3.5, 1e-45, -1e-39,
		8388607.5, -8388607.5, 8388609, 4194304.5, math.MaxFloat32, float32(math.Inf(1)),
		float32(math.Inf(-1)), float32(math.NaN())}
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
		for name, loop := range elementLoops(s[0], s[1]) {
			got, want := make([]float32, n+1), make([]float32, n)
			got[n] = 77
			loop(got[:n], a, b, c)
			for i := range want {
				loop(want[i:i+1], a[i:i+1], b[i:i+1], c[i:i+1])
			}
			if i := differs(got, want); i >= 0 || got[n] != 77 {
				t.Fatalf("%s of %d elements: element %d is %v, want %v (behind it: %v)", name, n, i,
					got[max(i, 0)], want[max(i, 0)], got[n])
			}
			x := slices.Clone(a)
			loop(x, x, b, c)
			if i := differs(x, want); i >= 0 {
				t.Fatalf("%s in place, %d elements: element %d is %v, want %v", name, n, i, x[i], want[i])
			}
		}
		var sum, sumMul, l Lanes
		for i, x := range a {
			sum[i%block] += x
			sumMul[i%block] += float32(x * b[i])
		}
		for _, c := range []struct {
			want Lanes
			add  func()
		}{{sum, func() { l.Sum(a) }}, {sumMul, func() { l.SumMul(a, b) }}} {
			l.Reset(Add)
			if c.add(); differs(l[:], c.want[:]) >= 0 {
				t.Fatalf("sums of %d elements are %v, want %v", n, l, c.want)
			}
		}
	}
}

func elementLoops(s, t float32) map[string]func(d, a, b, c []float32) {
	loops := map[string]func(d, a, b, c []float32){
		"mulMulS":    func(d, a, b, c []float32) { MulMulS(d, a, b, s) },
		"mulMul":     func(d, a, b, c []float32) { MulMul(d, a, b, c) },
		"intoAddS":   func(d, a, b, c []float32) { IntoAddS(d, a, s, t) },
		"siluSlope":  func(d, a, b, c []float32) { SiLUSlope(d, a, b) },
		"linAdd":     func(d, a, b, c []float32) { LinAdd(d, a, s, b, t) },
		"linSub":     func(d, a, b, c []float32) { LinSub(d, a, s, b, t) },
		"linMul":     func(d, a, b, c []float32) { LinMul(d, a, s, b, c, t) },
		"linMul 2":   func(d, a, b, c []float32) { LinMul(d, b, s, c, a, t) },
		"sqrtLin":    func(d, a, b, c []float32) { SqrtLin(d, a, s, t) },
		"expLin":     func(d, a, b, c []float32) { ExpLin(d, a, s, t) },
		"clamp":      func(d, a, b, c []float32) { Clamp(d, a, s, t) },
		"select":     func(d, a, b, c []float32) { Select(d, a, b, 0, c, 0) },
		"selectS":    func(d, a, b, c []float32) { Select(d, a, b, 0, nil, s) },
		"sSelect":    func(d, a, b, c []float32) { Select(d, a, nil, s, b, 0) },
		"selectSS":   func(d, a, b, c []float32) { Select(d, a, nil, s, nil, t) },
		"roundMulS":  func(d, a, b, c []float32) { RoundMulS(d, a, s) },
		"roundSmall": func(d, a, b, c []float32) { RoundSmall(d, a) },
		"near":       func(d, a, b, c []float32) { Near(d, a, b, s) },
		"fill":       func(d, a, b, c []float32) { Fill(d, s) },
	}
	for op := Neg; op < Count; op++ {
		if op >= And && op < NegBits {
			continue
		}
		loops[fmt.Sprint("one ", op)] = func(d, a, b, c []float32) { Unary(op, d, a) }
	}
	for op := Add; op < NegBits; op++ {
		if op >= Neg && op < And {
			continue
		}
		loops[fmt.Sprint("two ", op)] = func(d, a, b, c []float32) { Binary(op, d, a, b) }
		loops[fmt.Sprint("two, S ", op)] = func(d, a, b, c []float32) { BinaryS(op, d, a, s) }
		loops[fmt.Sprint("S, two ", op)] = func(d, a, b, c []float32) { SBinary(op, d, s, a) }
	}
	return loops
}

// TestGroups compares sums and extremes of groups of all sizes with their definitions.
func TestGroups(t *testing.T) {
	rng := rand.New(rand.NewPCG(8, 9))
	inf := float32(math.Inf(1))
	special := []float32{0, float32(math.Copysign(0, -1)), 1e-45, math.MaxFloat32, inf, -inf,
		float32(math.NaN())}
	for size := 1; size < 300; size++ {
		const groups = 9
		a, b := make([]float32, groups*size), make([]float32, groups*size)
		for i := range a {
			a[i], b[i] = float32(rng.NormFloat64()), float32(rng.NormFloat64())
			if rng.IntN(2*size) == 0 {
				a[i] = special[rng.IntN(len(special))]
			}
		}
		lanes := 8
		for lanes < size && lanes < block {
			lanes *= 2
		}
		extreme := func(op Op) func(x, y []float32) float32 {
			return func(x, y []float32) float32 {
				most := x[0]
				for _, v := range x[1:] {
					most = Two(op, most, v)
				}
				return most + 0
			}
		}
		for name, f := range map[string]struct {
			loop func(d []float32)
			want func(x, y []float32) float32
		}{
			"sum": {func(d []float32) { GroupFold(Add, d, a, size) }, func(x, y []float32) float32 {
				var l Lanes
				for i, v := range x {
					l[i%lanes] += v
				}
				return l.total(lanes)
			}},
			"sumMul": {func(d []float32) { GroupSumMul(d, a, b, size) }, func(x, y []float32) float32 {
				var l Lanes
				for i, v := range x {
					l[i%lanes] += float32(v * y[i])
				}
				return l.total(lanes)
			}},
			"max": {func(d []float32) { GroupFold(Max, d, a, size) }, extreme(Max)},
			"min": {func(d []float32) { GroupFold(Min, d, a, size) }, extreme(Min)},
			"largest": {func(d []float32) { GroupLargest(d, a, size) }, func(x, y []float32) float32 {
				most := uint32(0)
				for _, v := range x {
					most = max(most, math.Float32bits(v)&^(1<<31))
				}
				return math.Float32frombits(most)
			}},
		} {
			got, want := make([]float32, groups), make([]float32, groups)
			f.loop(got)
			for g := range want {
				want[g] = f.want(a[g*size:(g+1)*size], b[g*size:(g+1)*size])
			}
			if i := differs(got, want); i >= 0 {
				t.Fatalf("%s of %d: group %d is %v, want %v", name, size, i, got[i], want[i])
			}
		}
	}
}

// TestExp checks that exponentials and hyperbolic tangents have errors of at most two units in the
// last place, and have the right limits.
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
	if !(worst["exp"] <= 2 && worst["tanh"] <= 2) {
		t.Errorf("errors of %v units in the last place, want at most 2", worst)
	}
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	got := []float32{exp(inf), exp(-inf), exp(0), exp(88.8), exp(-105), exp(nan), tanh(inf),
		tanh(-inf), tanh(0), tanh(nan), tanh(1e-40)}
	if i := differs(got, []float32{inf, 0, 1, inf, 0, nan, 1, -1, 0, nan, 1e-40}); i >= 0 {
		t.Errorf("number %d is %v", i, got[i])
	}
}

// TestExponents checks that ldexp rounds once and that logb accepts subnormal numbers.
func TestExponents(t *testing.T) {
	for _, x := range []float32{1, -3.7, 1e-45, 1.1754944e-38, math.MaxFloat32, 0,
		float32(math.Inf(-1)), float32(math.NaN())} {
		if got, want := One(Logb, x), float32(math.Logb(float64(x))); got != want && want == want {
			t.Errorf("logb of %v is %v, want %v", x, got, want)
		}
		for n := -300; n <= 300; n++ {
			if got, want := Two(Ldexp, x, float32(n)), float32(math.Ldexp(float64(x), n)); got != want &&
				want == want {
				t.Errorf("%v·2^%d is %v, want %v", x, n, got, want)
			}
		}
	}
}

// TestMemory checks that conversions between storage types and floats give the same results as for
// single elements, for every length, and write nothing beyond the end.
func TestMemory(t *testing.T) {
	rng := rand.New(rand.NewPCG(11, 12))
	for n := range 100 {
		a, whole, short, bools := make([]float32, n), make([]float32, n), make([]uint16, n),
			make([]bool, n)
		for i := range a {
			a[i], whole[i], short[i], bools[i] = math.Float32frombits(rng.Uint32()),
				float32(rng.IntN(256)-128), uint16(rng.Uint32()), rng.IntN(2) == 0
			switch rng.IntN(8) {
			case 0:
				a[i] = 0
			case 1:
				a[i] = math.Float32frombits(0x7f800000 | uint32(rng.IntN(2)))
			case 2:
				a[i] = math.Float32frombits(rng.Uint32()&^0xffff | 0x8000)
			}
		}
		sameLoop(t, FromBFloat16, short)
		sameLoop(t, ToBFloat16, a)
		sameLoop(t, RoundToBFloat16, a)
		sameLoop(t, FromBools, bools)
		sameLoop(t, ToBools, a)
		sameLoop(t, ToInt8, whole)
		flags, floats, want := make([]Flags, n/8+1), make([]float32, n/8*8), make([]bool, n/8*8)
		ToFlags(flags, a[:n/8*8])
		ToBools(want, a)
		if FromFlags(floats, flags); flags[n/8] != 0 {
			t.Fatalf("flags of %d numbers are written beyond the end", n)
		}
		for i, w := range want {
			if floats[i] != boolFloat(w) {
				t.Fatalf("flag %d of %d is %v, want %v", i, n, floats[i], w)
			}
		}
	}
}

// TestSpread checks that every element is repeated the given number of times.
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

// sameLoop compares a loop with the same one over one element at a time.
func sameLoop[T, S comparable](t *testing.T, loop func(dst []T, a []S), a []S) {
	t.Helper()
	got, want := make([]T, len(a)+20), make([]T, len(a)+20)
	loop(got[:len(a)], a)
	for i := range a {
		loop(want[i:i+1], a[i:i+1])
	}
	for i := range got {
		if got[i] != want[i] && want[i] == want[i] {
			t.Fatalf("element %d of %d is %v, want %v", i, len(a), got[i], want[i])
		}
	}
}

// differs returns the first position with other bits, or −1 if there is none. All NaN are equal.
func differs(got, want []float32) int {
	for i, w := range want {
		if math.Float32bits(got[i]) != math.Float32bits(w) && !(got[i] != got[i] && w != w) {
			return i
		}
	}
	return -1
}

// TestRotate multiplies blocks of every size by the Hadamard matrix, into another slice and in
// place.
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
				if !(math.Abs(float64(got[i])-want) <= 5e-7*math.Sqrt(norm)) {
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

// TestRotateLoops checks that Rotate gives the bits of butterflies, special numbers included.
func TestRotateLoops(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	special := []float32{0, float32(math.Copysign(0, -1)), 1e-45, -1e-39, math.MaxFloat32,
		float32(math.Inf(1)), float32(math.NaN())}
	// butterflies of distances from h to end, which is excluded
	steps := func(a []float32, h, end int) {
		for ; h != end; h = map[bool]int{true: 2 * h, false: h / 2}[end > h] {
			for i := range a {
				if i&h == 0 {
					a[i], a[i+h] = a[i]+a[i+h], a[i]-a[i+h]
				}
			}
		}
	}
	for size := 1; size <= 1024; size *= 2 {
		a := make([]float32, 3*size)
		for i := range a {
			a[i] = float32(rng.NormFloat64())
			if rng.IntN(2*len(a)) < 3 {
				a[i] = special[rng.IntN(len(special))]
			}
		}
		got, want := make([]float32, len(a)), make([]float32, len(a))
		Rotate(got, a, size)
		BinaryS(Mul, want, a, float32(1/math.Sqrt(float64(size))))
		steps(want, min(size, run)/2, 0)
		steps(want, run, max(size, run))
		if i := differs(got, want); i >= 0 {
			t.Fatalf("blocks of %d: element %d is %v, want %v", size, i, got[i], want[i])
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

// TestRoundSmall checks that small numbers are rounded to even, and keep the sign of zeros.
func TestRoundSmall(t *testing.T) {
	var x []float32
	for i := range 101 {
		x = append(x, float32(i-50)/8, float32(math.Copysign(0, float64(i-50))))
	}
	got := make([]float32, len(x))
	RoundSmall(got, x)
	for i, v := range x {
		want := float32(math.RoundToEven(float64(v)))
		if math.Float32bits(got[i]) != math.Float32bits(want) {
			t.Errorf("%v is rounded to %v, want %v", v, got[i], want)
		}
	}
}
