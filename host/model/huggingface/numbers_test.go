package huggingface

import (
	"encoding/binary"
	"math"
	"testing"

	"github.com/cage-qat/cage/host/model/safetensors"
)

// TestWiden: every number of two bytes is read as what it says.
func TestWiden(t *testing.T) {
	for bits := range 1 << 16 {
		data := binary.LittleEndian.AppendUint16(nil, uint16(bits))
		var half, brain [1]float32
		if err := widen(safetensors.F16, data, half[:]); err != nil {
			t.Fatal(err)
		}
		if err := widen(safetensors.BF16, data, brain[:]); err != nil {
			t.Fatal(err)
		}
		if got, want := half[0], number(bits, 5, 10); !same(got, want) {
			t.Fatalf("half %#04x is read as %v, want %v", bits, got, want)
		}
		if got, want := brain[0], number(bits, 8, 7); !same(got, want) {
			t.Fatalf("bfloat16 %#04x is read as %v, want %v", bits, got, want)
		}
	}
}

func same(a float32, b float64) bool {
	return float64(a) == b && math.Signbit(float64(a)) == math.Signbit(b) || a != a && b != b
}

// number is the value of a number of IEEE 754 with so many bits of exponent and mantissa.
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
