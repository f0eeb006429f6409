package huggingface

import (
	"math"
	"testing"

	"github.com/cage-qat/cage/host/safetensors"
)

// TestHalf: every half survives, and what lies between two goes to the nearer one, or to the even one.
func TestHalf(t *testing.T) {
	value := func(bits uint16) float32 {
		var x [1]float32
		if err := widen(safetensors.F16, []byte{byte(bits), byte(bits >> 8)}, x[:]); err != nil {
			t.Fatal(err)
		}
		return x[0]
	}
	for bits := range uint16(0x7c00) { // the finite ones that are not negative
		exponent, mantissa := int(bits>>10), float64(bits&0x3ff)
		want := math.Ldexp(mantissa, -24)
		if exponent > 0 {
			want = math.Ldexp(1024+mantissa, exponent-25)
		}
		x := value(bits)
		if float64(x) != want {
			t.Fatalf("half %#04x is read as %v, want %v", bits, x, want)
		}
		if half(x) != bits || half(-x) != bits|0x8000 {
			t.Fatalf("half %#04x comes back as %#04x and %#04x", bits, half(x), half(-x))
		}
		next := math.Ldexp(1024, 6) // follows the largest half
		if bits < 0x7bff {
			next = float64(value(bits + 1))
		}
		middle := float32((want + next) / 2)
		for to, from := range map[uint16]float32{bits: math.Nextafter32(middle, 0), bits + bits&1: middle, bits + 1: math.Nextafter32(middle, 1e9)} {
			if from != middle && from == x {
				continue // no float32 lies between
			}
			if got := half(from); got != to {
				t.Fatalf("%v becomes %#04x, want %#04x", from, got, to)
			}
		}
	}
	if half(float32(math.Inf(-1))) != 0xfc00 || half(math.MaxFloat32) != 0x7c00 || half(float32(math.NaN()))&0x7fff <= 0x7c00 {
		t.Error("infinities and NaN do not survive")
	}
}

// TestBrain: every bfloat16 survives, and what lies between two goes to the nearer one, or to the even one.
func TestBrain(t *testing.T) {
	for bits := range uint32(0x7f80) { // the finite ones that are not negative
		x, middle := math.Float32frombits(bits<<16), bits<<16|0x8000
		if brain(x) != uint16(bits) || brain(-x) != uint16(bits)|0x8000 {
			t.Fatalf("bfloat16 %#04x comes back as %#04x and %#04x", bits, brain(x), brain(-x))
		}
		for from, to := range map[uint32]uint32{middle - 1: bits, middle: bits + bits&1, middle + 1: bits + 1} {
			if got := brain(math.Float32frombits(from)); got != uint16(to) {
				t.Fatalf("%#08x becomes %#04x, want %#04x", from, got, to)
			}
		}
	}
	if brain(float32(math.Inf(-1))) != 0xff80 || brain(math.Float32frombits(0x7f800001))&0x7fff <= 0x7f80 {
		t.Error("infinities and NaN do not survive")
	}
}
