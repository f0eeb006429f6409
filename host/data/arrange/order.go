package arrange

import (
	"math/rand/v2"

	"github.com/cage-qat/cage/internal/shuffle"
)

// The second halves of the seeds of generators: they keep random numbers for different uses
// of the same seed apart.
const (
	windowsStream = 0x63616765_64617461 // "cagedata"
	mixtureStream = 0x63616765_6d697874 // "cagemixt"
	rowsStream    = 0x63616765_63686174 // "cagechat"
)

// generator returns the random numbers for one epoch, or for one group of a mixture: PCG-DXSM,
// whose output math/rand/v2 fixes. The drawing of bounded numbers and the shuffle are those of
// [shuffle.Below] and [shuffle.Slice].
func generator(seed uint64, epoch int64, stream uint64) *rand.PCG {
	return rand.NewPCG(seed+uint64(epoch), stream)
}

// epochOrder returns the random choices of one epoch: where its first window
// begins, in [0, context), and the order in which its windows are visited.
//
// The order is an explicit table of 4 bytes per window: 80 MB for ten billion
// tokens in windows of 512, shuffled once per epoch. A Feistel network would
// need no memory, but reaches only a tiny part of all orders and is harder to
// reproduce elsewhere.
func epochOrder(seed uint64, epoch int64, context int, windows uint32) (offset int, order []uint32) {
	rng := generator(seed, epoch, windowsStream)
	offset = int(shuffle.Below(rng, uint64(context)))
	order = make([]uint32, windows)
	for i := range order {
		order[i] = uint32(i)
	}
	shuffle.Slice(rng, order)
	return offset, order
}
