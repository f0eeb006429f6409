package diagnostics

import (
	"math/bits"
	"math/rand/v2"
	"slices"
)

// choiceStream is the second half of the generator's seed; it keeps these numbers
// apart from other uses of the same seed.
const choiceStream = 0x63616765_64696167 // "cagediag"

// Choose draws a random subset of the coordinates of tensors of the given sizes: count of
// them in total, or all if there are fewer. Each tensor gets a share in proportion to its
// size, so that a mean over the chosen coordinates estimates the mean over all. A tensor
// whose share is below one coordinate may get none. The positions in each tensor are
// ascending and determined by the seed alone.
func Choose(seed uint64, count int, sizes ...int) [][]int32 {
	total := 0
	for _, size := range sizes {
		total += size
	}
	count = max(0, min(count, total))
	rng := rand.NewPCG(seed, choiceStream)
	chosen := make([][]int32, len(sizes))
	before := 0
	for i, size := range sizes {
		if size == 0 {
			continue
		}
		share := portion(count, before+size, total) - portion(count, before, total)
		chosen[i] = subset(rng, share, size)
		before += size
	}
	return chosen
}

// portion is ⌊count·part/total⌋.
func portion(count, part, total int) int {
	hi, lo := bits.Mul64(uint64(count), uint64(part))
	quotient, _ := bits.Div64(hi, lo, uint64(total))
	return int(quotient)
}

// subset draws count of the numbers below size, all subsets with the same chance, by
// Floyd's algorithm (Bentley and Floyd, "A sample of brilliance", 1987).
func subset(rng rand.Source, count, size int) []int32 {
	taken := make(map[int32]bool, count)
	list := make([]int32, 0, count)
	for j := size - count; j < size; j++ {
		k := int32(below(rng, uint64(j)+1))
		if taken[k] {
			k = int32(j)
		}
		taken[k] = true
		list = append(list, k)
	}
	slices.Sort(list)
	return list
}

// below returns a number in [0, n): the upper half of a 128-bit product. Its bias is at
// most n/2⁶⁴.
func below(rng rand.Source, n uint64) uint64 {
	hi, _ := bits.Mul64(rng.Uint64(), n)
	return hi
}
