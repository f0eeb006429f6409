package reference

import "testing"

// TestThreefry checks the known-answer vectors of Random123 for threefry2x32 with 20 rounds.
func TestThreefry(t *testing.T) {
	cases := []struct{ counter, key, want [2]uint32 }{
		{[2]uint32{0, 0}, [2]uint32{0, 0}, [2]uint32{0x6b200159, 0x99ba4efe}},
		{[2]uint32{0xffffffff, 0xffffffff}, [2]uint32{0xffffffff, 0xffffffff},
			[2]uint32{0x1cb996fc, 0xbb002be7}},
		{[2]uint32{0x243f6a88, 0x85a308d3}, [2]uint32{0x13198a2e, 0x03707344},
			[2]uint32{0xc4923a9c, 0x483df7a0}},
	}
	for _, c := range cases {
		if got := threefry2x32(c.key, c.counter); got != c.want {
			t.Errorf("key %x, counter %x: %x, want %x", c.key, c.counter, got, c.want)
		}
	}
}
