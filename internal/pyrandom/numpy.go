package pyrandom

import (
	"fmt"
	"math/bits"

	"gonum.org/v1/gonum/mathext/prng"
)

// RandomState is numpy's RandomState, its legacy generator, which numpy.random.seed
// seeds.
type RandomState struct{ words *prng.MT19937 }

// NewRandomState is numpy's RandomState(seed).
func NewRandomState(seed uint32) *RandomState {
	s := &RandomState{prng.NewMT19937()}
	s.words.Seed(uint64(seed))
	return s
}

// RandInt is numpy's randint(low, high): a number in [low, high). It panics if that range
// is empty or holds 2³² numbers or more, which numpy draws in another way.
func (s *RandomState) RandInt(low, high int) int {
	width := high - low - 1
	if high <= low || width >= 1<<32-1 {
		panic(fmt.Sprintf("pyrandom: randint(%d, %d) is not supported", low, high))
	}
	if width == 0 {
		return low // without a draw
	}
	mask := uint32(1)<<bits.Len(uint(width)) - 1
	for {
		if drawn := s.words.Uint32() & mask; int(drawn) <= width {
			return low + int(drawn)
		}
	}
}
