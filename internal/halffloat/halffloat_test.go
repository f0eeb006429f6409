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
