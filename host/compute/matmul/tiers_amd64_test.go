//go:build amd64 && goexperiment.simd

package matmul

import (
	"slices"
	"testing"
)

// TestOrderOfTiers checks that the tier with VDPBF16PS is first where that instruction is fast.
// This tier and avx512vnni both multiply integers by VPDPBUSD.
func TestOrderOfTiers(t *testing.T) {
	for _, c := range []struct {
		vendor     string
		vnni, bf16 bool
		want       []string
	}{
		{"AuthenticAMD", true, true, []string{"avx512bf16", "avx512vnni", "avx512"}},
		{"GenuineIntel", true, true, []string{"avx512vnni", "avx512bf16", "avx512"}},
		{"AuthenticAMD", true, false, []string{"avx512vnni", "avx512"}},
		{"GenuineIntel", false, false, []string{"avx512"}},
	} {
		var names []string
		for _, tier := range tiers512(c.vnni, c.bf16, fastBFloat16(c.vendor)) {
			names = append(names, tier.Name())
		}
		if !slices.Equal(names, c.want) {
			t.Errorf("%+v: %v", c, names)
		}
	}
}

// TestVendor checks that the vendor string of the processor consists of twelve printable
// characters.
func TestVendor(t *testing.T) {
	if len(vendor()) != 12 {
		t.Fatalf("%q", vendor())
	}
	for _, c := range vendor() {
		if c < ' ' || c > '~' {
			t.Fatalf("%q", vendor())
		}
	}
	t.Log(vendor())
}
