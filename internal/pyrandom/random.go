package pyrandom

import (
	"fmt"
	"math/big"
	"math/bits"

	"gonum.org/v1/gonum/mathext/prng"
)

// Random is Python's random.Random.
type Random struct{ words *prng.MT19937 }

// New is Python's Random(seed) for a whole number. As in Python, its sign makes no
// difference.
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

// Random is Python's random(): a multiple of 2⁻⁵³ in [0, 1).
func (r *Random) Random() float64 {
	high, low := r.words.Uint32()>>5, r.words.Uint32()>>6
	return (float64(high)*(1<<26) + float64(low)) / (1 << 53)
}

// GetRandBits is Python's getrandbits(k): a number of at most k bits.
func (r *Random) GetRandBits(k int) *big.Int {
	n := new(big.Int)
	for at := 0; at < k; at += 32 {
		word := new(big.Int).SetUint64(uint64(r.word(k - at)))
		n.Or(n, word.Lsh(word, uint(at)))
	}
	return n
}

// word is the next of a number's words, which stand from the lowest to the highest: 32
// bits, or as many as are missing.
func (r *Random) word(missing int) uint32 {
	return r.words.Uint32() >> (32 - min(32, missing))
}

// Below is Python's randrange(n): a number in [0, n). It panics if n is not positive.
func (r *Random) Below(n int) int {
	if n <= 0 {
		panic(fmt.Sprintf("pyrandom: there is no number in [0, %d)", n))
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

// RandInt is Python's randint(low, high): a number in [low, high]. It panics if that
// range is empty.
func (r *Random) RandInt(low, high int) int { return low + r.Below(high-low+1) }
