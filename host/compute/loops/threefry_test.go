package loops

import (
	"fmt"
	"math"
	"testing"
)

// TestBits compares Block with known answers of Random123 and of the reference implementation
// (sdk/program/reference). It checks that Bits gives the words of [Block], also where the counter
// wraps around, and writes nothing beyond the end.
func TestBits(t *testing.T) {
	if got := Block([2]uint32{0, 0}, [2]uint32{0, 0}); got != [2]uint32{0x6b200159, 0x99ba4efe} {
		t.Errorf("zeros give %x", got)
	}
	if got := Block([2]uint32{0x13198a2e, 0x03707344},
		[2]uint32{0x243f6a88, 0x85a308d3}); got != [2]uint32{0xc4923a9c, 0x483df7a0} {
		t.Errorf("digits of π give %x", got)
	}
	for n := range 100 {
		for _, first := range []uint32{0, 5, math.MaxUint32 - 20} {
			key := [2]uint32{uint32(n) * 77, 0xdeadbeef}
			got, want := make([]uint32, n+1), make([]uint32, n)
			got[n] = 1
			Bits(got[:n], key, first)
			for i := range want {
				want[i] = Block(key, [2]uint32{first + uint32(i), 0})[0]
				if got[i] != want[i] {
					t.Fatalf("%d words from %d: word %d is %x, want %x", n, first, i, got[i], want[i])
				}
			}
			if got[n] != 1 {
				t.Fatalf("%d words: something is written behind the end", n)
			}
		}
	}
}

func BenchmarkBits(b *testing.B) {
	dst := make([]uint32, 1<<14)
	b.SetBytes(int64(4 * len(dst)))
	for b.Loop() {
		Bits(dst, [2]uint32{1, 2}, 0)
	}
}

func ExampleBlock() {
	key := Block([2]uint32{42, 0}, [2]uint32{7, 0}) // a key of step 7, from the seed 42
	bits := make([]uint32, 2)
	Bits(bits, key, 0)
	fmt.Printf("%08x\n", bits)
	// Output: [c25de16f bb0c348b]
}
