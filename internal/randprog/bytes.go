package randprog

import "math/rand/v2"

// Bytes returns a source of random numbers for fuzzing: each number is decided by one
// byte of the data, so that changing a byte changes one choice. When the data ends, the
// numbers continue from a seed.
func Bytes(data []byte) *rand.Rand {
	return rand.New(&bytes{data: data, rest: rand.NewPCG(uint64(len(data)), 5)})
}

type bytes struct {
	data []byte
	rest *rand.PCG
}

// Uint64 has the byte at the top, where a draw from a small range takes it from.
func (b *bytes) Uint64() uint64 {
	low := b.rest.Uint64()
	if len(b.data) == 0 {
		return low
	}
	top := uint64(b.data[0])
	b.data = b.data[1:]
	return top<<56 | low>>8
}
