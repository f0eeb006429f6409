// Package shuffle shuffles lists reproducibly: the order depends only on the seed. The standard
// library guarantees the output of its random generators, but not of its shuffling.
package shuffle

import (
	"math/bits"
	"math/rand/v2"
)

// Slice shuffles a list with the Fisher–Yates algorithm, from its end.
func Slice[T any](rng rand.Source, list []T) {
	for i := len(list) - 1; i > 0; i-- {
		j := Below(rng, uint64(i)+1)
		list[i], list[j] = list[j], list[i]
	}
}

// Below returns a random number in [0, n), the upper half of a 128-bit product. Its bias is at most
// n/2⁶⁴.
func Below(rng rand.Source, n uint64) uint64 {
	hi, _ := bits.Mul64(rng.Uint64(), n)
	return hi
}
