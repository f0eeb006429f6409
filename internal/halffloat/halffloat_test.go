package halffloat_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/cage-qat/cage/internal/halffloat"
)

// TestToBFloat16 checks, in float64, that ToBFloat16 returns the nearest bfloat16, or the even one
// of two.
func TestToBFloat16(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	number := func(bits uint32) float64 { return float64(math.Float32frombits(bits)) }
	for range 100000 {
		x := r.Uint32()
		got := uint32(halffloat.ToBFloat16(math.Float32frombits(x))) << 16
		switch down := x &^ 0xffff; {
		case math.IsNaN(number(x)):
			if !math.IsNaN(number(got)) || got&0x400000 == 0 {
				t.Fatalf("%#x, which is NaN, becomes %#x", x, got)
			}
		// the next number is infinity, which counts as 2¹²⁸
		case x&0x7fff0000 == 0x7f7f0000:
			if want := (x + 0x8000) &^ 0xffff; got != want {
				t.Fatalf("%#x becomes %#x, want %#x", x, got, want)
			}
		default:
			below, above := math.Abs(number(x)-number(down)), math.Abs(number(down+0x10000)-number(x))
			want := down
			if above < below || above == below && down&0x10000 != 0 {
				want = down + 0x10000
			}
			if got != want {
				t.Fatalf("%#x becomes %#x, want %#x", x, got, want)
			}
		}
	}
}

// TestFrom checks the conversion of all 16-bit numbers to float32.
func TestFrom(t *testing.T) {
	for bits := range 1 << 16 {
		if got, want := halffloat.FromHalf(uint16(bits)), number(bits, 5, 10); !same(got, want) {
			t.Fatalf("half %#04x is read as %v, want %v", bits, got, want)
		}
		got, want := halffloat.FromBFloat16(uint16(bits)), number(bits, 8, 7)
		if !same(got, want) {
			t.Fatalf("bfloat16 %#04x is read as %v, want %v", bits, got, want)
		}
	}
}

func same(a float32, b float64) bool {
	return float64(a) == b && math.Signbit(float64(a)) == math.Signbit(b) || a != a && b != b
}

// number returns the value of an IEEE 754 number with the given sizes of exponent and mantissa.
func number(bits, exponentBits, mantissaBits int) float64 {
	most := 1<<exponentBits - 1
	bias := most >> 1
	exponent, mantissa := bits>>mantissaBits&most, bits&(1<<mantissaBits-1)
	sign := 1 - 2*float64(bits>>15)
	switch {
	case exponent == most && mantissa == 0:
		return math.Inf(int(sign))
	case exponent == most:
		return math.NaN()
	case exponent == 0:
		return sign * math.Ldexp(float64(mantissa), 1-bias-mantissaBits)
	}
	return sign * math.Ldexp(float64(1<<mantissaBits+mantissa), exponent-bias-mantissaBits)
}
