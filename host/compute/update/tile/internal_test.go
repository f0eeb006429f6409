package tile

import (
	"errors"
	"fmt"
	"math"
	"math/bits"
	"math/rand/v2"
	"testing"

	"github.com/cage-qat/cage/internal/guard"
	"github.com/cage-qat/cage/sdk/program"
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

// TestRotate: blocks of every size are multiplied by the matrix, in another place and in
// their own.
func TestRotate(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for block := 1; block <= Elements; block *= 2 {
		t.Run(fmt.Sprint(block), func(t *testing.T) {
			a := make([]float32, max(Elements, 3*block)/block*block)
			for i := range a {
				a[i] = float32(rng.NormFloat64())
			}
			got := make([]float32, len(a))
			rotate(got, a, block)
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
			rotate(a, a, block)
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
	a := make([]float32, Elements)
	for i := range a {
		a[i] = float32(i % 7)
	}
	b.SetBytes(4 * Elements)
	for b.Loop() {
		rotate(a, a, 128)
	}
}

// Tiles compute every operation, or refuse it for a reason that is told.
func TestEveryOperationIsComputedOrRefused(t *testing.T) {
	for _, info := range program.Ops() {
		entries := 0
		for _, has := range []bool{rules[info.Op] != nil, notYet[info.Op] != "", neverPossible[info.Op] != ""} {
			if has {
				entries++
			}
		}
		if entries != 1 {
			t.Errorf("%s stands in %d of the tables rules, notYet and impossible", info.Name, entries)
		}
	}
	if len(rules)+len(notYet)+len(neverPossible) != len(program.Ops()) {
		t.Error("there are entries for operations that do not exist")
	}
}

// broken is a kernel of two passes that reads what there is not: in the first pass, or in
// the scalars before.
func broken(t *testing.T, pass bool) *Kernel {
	t.Helper()
	b := program.NewBuilder("update/broken")
	x, s := b.Input("x", program.FloatType(50000)), b.Input("s", program.FloatType())
	b.Output("x", x.Sub(x.SumAll().Mul(s.Neg())))
	p, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	k, err := Compile(p)
	if err != nil {
		t.Fatal(err)
	}
	if k.Passes() != 2 {
		t.Fatalf("%d passes", k.Passes())
	}
	if pass {
		k.phases[0][0].a = 1000
	} else {
		k.scalars.ops = append(k.scalars.ops, 1000)
	}
	return k
}

// TestPanicsBecomeErrors: on the caller's goroutine or another one, while others wait for
// the end of a pass, and the runner can be used again.
func TestPanicsBecomeErrors(t *testing.T) {
	good := broken(t, true)
	good.phases[0][0].a = 0
	for _, threads := range []int{1, 2, 5} {
		for _, pass := range []bool{true, false} {
			r := NewRunner(threads)
			call := func(k *Kernel) Call {
				x := make([]float32, 50000)
				return Call{Kernel: k, Inputs: [][]float32{x, {1}}, Outputs: [][]float32{x}}
			}
			for range 3 {
				err := r.Run([]Call{call(good), call(broken(t, pass)), call(good)})
				var caught *guard.PanicError
				if !errors.As(err, &caught) || caught.Executor != "tile" || caught.Program != "update/broken" {
					t.Fatalf("%d goroutines: got %v", threads, err)
				}
			}
			x := make([]float32, 50000)
			x[7] = 2
			if err := r.Run([]Call{{Kernel: good, Inputs: [][]float32{x, {1}}, Outputs: [][]float32{x}}}); err != nil || x[0] != 2 || x[7] != 4 {
				t.Errorf("%d goroutines: after a panic: %v, %v, %v", threads, err, x[0], x[7])
			}
		}
	}
}
