package export

import "testing"

// TestNVFP4ScaleBetweenTwo: where scales cannot be exact, one half way between two numbers of E4M3 becomes what a cast of
// PyTorch to float8_e4m3fn makes of it. Otherwise an inexact export would differ from what compressed-tensors writes.
func TestNVFP4ScaleBetweenTwo(t *testing.T) {
	for scale, want := range map[float32]float32{1.0625: 1, 1.1875: 1.25, 0x1p-10: 0, 3 * 0x1p-10: 0x1p-8, 1.0625001: 1.125, 1.0624999: 1, 447: 448, 448: 448} {
		s, ok := findNVFP4([]float32{448, 1.0625, scale}) // 17/16 of a number of E4M3 is none, whatever the global scale
		if !ok || s.exact || s.global != 1 {
			t.Fatalf("%v: %+v, %t: want an inexact one with the global scale 1", scale, s, ok)
		}
		if got := e4m3(s.blocks[scale]); got != want {
			t.Errorf("the scale %v becomes %v, want %v", scale, got, want)
		}
	}
}

// e4m3 is the number of E4M3 with a code, worked out by its definition.
func e4m3(code byte) float32 {
	exponent, mantissa := int(code>>3), float32(code&7)
	v := (8 + mantissa) / 8
	if exponent == 0 {
		exponent, v = 1, mantissa/8
	}
	for ; exponent < 7; exponent++ {
		v /= 2
	}
	for ; exponent > 7; exponent-- {
		v *= 2
	}
	return v
}

// PlanOnly checks and plans an export without writing it.
func PlanOnly(format string, m *Model) error {
	if err := m.Tokenizer.check(m.Settings.Vocab); err != nil {
		return err
	}
	_, err := formats[format](m, Options{})
	return err
}
