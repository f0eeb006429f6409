package loops

import (
	"math"
	"testing"
	"time"
)

// BenchmarkLoops reports the time per element of a tile of 2048 in the fastest run, which other
// load on the machine changes least.
func BenchmarkLoops(b *testing.B) {
	const n = 2048
	x, y, z, dst := make([]float32, n), make([]float32, n), make([]float32, n), make([]float32, n)
	for i := range x {
		x[i], y[i], z[i] = float32(i%13)-6.3, float32(i%7)-3.2, float32(i%2)
	}
	short, bools, bytes := make([]uint16, n), make([]bool, n), make([]int8, n)
	for name, f := range map[string]func(){
		"add": func() { Binary(Add, dst, x, y) }, "mulS": func() { BinaryS(Mul, dst, x, 3) },
		"divS":  func() { BinaryS(Div, dst, x, 3) },
		"clamp": func() { Clamp(dst, x, -2, 2) }, "roundSmall": func() { RoundSmall(dst, x) },
		"round": func() { Unary(Round, dst, x) },
		"abs":   func() { Unary(Abs, dst, x) }, "leS": func() { BinaryS(Le, dst, x, 1) },
		"max":     func() { Binary(Max, dst, x, y) },
		"select":  func() { Select(dst, z, x, 0, y, 0) },
		"selectS": func() { Select(dst, z, x, 0, nil, 0) }, "exp": func() { Unary(Exp, dst, x) },
		"tanh": func() { Unary(Tanh, dst, x) }, "sumMul": func() { GroupSumMul(dst[:8], x, x, 256) },
		"largest32": func() { GroupLargest(dst[:64], x, 32) },
		"max256":    func() { GroupFold(Max, dst[:8], x, 256) },
		"mulMul":    func() { MulMul(dst, x, y, z) },
		"siluSlope": func() { SiLUSlope(dst, x, y) },
		"intoAddS":  func() { IntoAddS(dst, x, 1, 9) },
		"sum32":     func() { GroupFold(Add, dst[:64], x, 32) },
		"spread32":  func() { Spread(dst, x[:64], 32) }, "rotate128": func() { Rotate(dst, x, 128) },
		"rotate16":     func() { Rotate(dst, x, 16) },
		"fromBFloat16": func() { FromBFloat16(dst, short) },
		"toBFloat16":   func() { ToBFloat16(short, x) }, "fromBools": func() { FromBools(dst, bools) },
		"toBools": func() { ToBools(bools, x) }, "toInt8": func() { ToInt8(bytes, x) },
		"copy": func() { copy(dst, x) },
	} {
		b.Run(name, func(b *testing.B) {
			const times = 20
			best := time.Duration(math.MaxInt64)
			for b.Loop() {
				start := time.Now()
				for range times {
					f()
				}
				best = min(best, time.Since(start))
			}
			b.ReportMetric(float64(best.Nanoseconds())/(n*times), "best-ns/element")
		})
	}
}
