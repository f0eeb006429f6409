package loops

import "math/bits"

// rotations are the rotation distances of Threefry-2x32 (Salmon et al. 2011, table 2).
var rotations = [8]int{13, 15, 26, 6, 17, 29, 16, 24}

// parity is mixed into the third word of a key, which is therefore nonzero if the key is zero.
const parity = 0x1BD11BDA

// Block computes Threefry-2x32 with 20 rounds (Salmon et al. 2011). The first word is what a
// program's random_bits operation returns.
func Block(key, counter [2]uint32) [2]uint32 {
	words := [3]uint32{key[0], key[1], parity ^ key[0] ^ key[1]}
	x0, x1 := counter[0]+words[0], counter[1]+words[1]
	for round := range 20 {
		x0 += x1
		x1 = bits.RotateLeft32(x1, rotations[round%8]) ^ x0
		if round%4 == 3 {
			injection := round/4 + 1
			x0 += words[injection%3]
			x1 += words[(injection+1)%3] + uint32(injection)
		}
	}
	return [2]uint32{x0, x1}
}

// Bits sets dst to the first words of [Block] for the counters (first, 0), (first + 1, 0), …
func Bits(dst []uint32, key [2]uint32, first uint32) {
	for i := bits256(dst, key, first); i < len(dst); i++ {
		dst[i] = Block(key, [2]uint32{first + uint32(i), 0})[0]
	}
}
