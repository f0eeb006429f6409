// Package pyrandom generates the same random numbers as Python's random.Random and numpy's
// RandomState. Published evaluations use them to choose examples and generate texts, so reproducing
// their prompts requires the same numbers.
//
// The Mersenne Twister is gonum's. This package implements CPython's seeding and its conversion of
// random words to numbers, choices, permutations and samples (Lib/random.py,
// Modules/_randommodule.c of CPython 3.12), and numpy's bounded integers
// (numpy/random/src/distributions of numpy 2). cage's own sampling must not use this package, but
// internal/shuffle.
package pyrandom

import (
	"fmt"
	"math/big"
	"math/bits"

	"github.com/cage-qat/cage/internal/lists"
	"gonum.org/v1/gonum/mathext/prng"
)

// Random corresponds to Python's random.Random.
type Random struct{ words *prng.MT19937 }

// New corresponds to Python's Random(seed) for an integer. As in Python, the sign is ignored.
func New(seed int64) *Random {
	magnitude := uint64(seed)
	if seed < 0 {
		magnitude = -magnitude
	}
	key := []uint32{uint32(magnitude)}
	if high := uint32(magnitude >> 32); high != 0 {
		key = append(key, high)
	}
	r := &Random{prng.NewMT19937()}
	r.words.SeedFromKeys(key)
	return r
}

// Random corresponds to Python's random(). It returns a multiple of 2⁻⁵³ in [0, 1).
func (r *Random) Random() float64 {
	high, low := r.words.Uint32()>>5, r.words.Uint32()>>6
	return (float64(high)*(1<<26) + float64(low)) / (1 << 53)
}

// GetRandBits corresponds to Python's getrandbits(k). It returns a number of at most k bits.
func (r *Random) GetRandBits(k int) *big.Int {
	n := new(big.Int)
	for at := 0; at < k; at += 32 {
		word := new(big.Int).SetUint64(uint64(r.word(k - at)))
		n.Or(n, word.Lsh(word, uint(at)))
	}
	return n
}

// word returns the next 32-bit word of a number, or only the upper bits of a word if fewer bits are
// missing. Words are in little-endian order.
func (r *Random) word(missing int) uint32 {
	return r.words.Uint32() >> (32 - min(32, missing))
}

// Below corresponds to Python's randrange(n): it returns a number in [0, n). It panics if n ≤ 0.
func (r *Random) Below(n int) int {
	if n <= 0 {
		panic(fmt.Sprintf("pyrandom: the range [0, %d) is empty", n))
	}
	k := bits.Len(uint(n))
	for {
		drawn := uint64(r.word(k))
		if k > 32 {
			drawn |= uint64(r.word(k-32)) << 32
		}
		if drawn < uint64(n) {
			return int(drawn)
		}
	}
}

// RandInt corresponds to Python's randint(low, high): it returns a number in [low, high]. It panics
// if that range is empty.
func (r *Random) RandInt(low, high int) int { return low + r.Below(high-low+1) }

// Choice corresponds to Python's choice(list). It panics if the list is empty.
func Choice[T any](r *Random, list []T) T { return list[r.Below(len(list))] }

// Choices corresponds to Python's choices(list, k=k). It returns k elements, with repetition.
func Choices[T any](r *Random, list []T, k int) []T {
	return lists.Make(k, func(int) T { return list[int(r.Random()*float64(len(list)))] })
}

// Shuffle corresponds to Python's shuffle(list).
func Shuffle[T any](r *Random, list []T) {
	for i := len(list) - 1; i > 0; i-- {
		j := r.Below(i + 1)
		list[i], list[j] = list[j], list[i]
	}
}

// Sample corresponds to Python's sample(range(n), k). It returns k different numbers below n, in
// the order in which they are drawn. It panics if k > n.
func (r *Random) Sample(n, k int) []int {
	if k < 0 || k > n {
		panic(fmt.Sprintf("pyrandom: cannot sample %d of %d numbers", k, n))
	}
	drawn := make([]int, k)
	if n <= largestPool(k) {
		pool := lists.Range(n)
		for i := range drawn {
			last := n - i - 1
			j := r.Below(last + 1)
			drawn[i], pool[j] = pool[j], pool[last]
		}
		return drawn
	}
	taken := make(map[int]bool, k)
	for i := range drawn {
		j := r.Below(n)
		for taken[j] {
			j = r.Below(n)
		}
		taken[j] = true
		drawn[i] = j
	}
	return drawn
}

// largestPool returns the largest population from which CPython draws k numbers by way of a list,
// which then takes less memory than a set. The two algorithms draw different numbers.
func largestPool(k int) int {
	const smallSet = 21
	if k <= 5 {
		return smallSet
	}
	table := 1
	for table < 3*k {
		table *= 4
	}
	return smallSet + table
}

// RandomState corresponds to numpy's RandomState, the legacy generator that numpy.random.seed
// seeds.
type RandomState struct{ words *prng.MT19937 }

// NewRandomState corresponds to numpy's RandomState(seed).
func NewRandomState(seed uint32) *RandomState {
	s := &RandomState{prng.NewMT19937()}
	s.words.Seed(uint64(seed))
	return s
}

// RandInt corresponds to numpy's randint(low, high): it returns a number in [low, high). It panics
// if that range is empty or has 2³² or more numbers, for which numpy uses another algorithm.
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
