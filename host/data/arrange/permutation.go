package arrange

import (
	"math/rand/v2"

	"github.com/cage-qat/cage/internal/shuffle"
)

// samplerStream is the second half of the seed of every epoch's generator; it
// keeps these numbers apart from other uses of the same seed.
const samplerStream = 0x63616765_64617461 // "cagedata"

// epochOrder returns the random choices of one epoch: where its first window
// begins, in [0, context), and the order in which its windows are visited.
//
// The generator is PCG-DXSM with the seed (seed + epoch, samplerStream), whose
// output math/rand/v2 fixes; the drawing of bounded numbers and the shuffle are
// those of [shuffle.Below] and [shuffle.Slice].
//
// The order is an explicit table of 4 bytes per window: 80 MB for ten billion
// tokens in windows of 512, shuffled once per epoch. A Feistel network would
// need no memory, but reaches only a tiny part of all orders and is harder to
// reproduce elsewhere.
func epochOrder(seed uint64, epoch int64, context int, windows uint32) (offset int, order []uint32) {
	rng := rand.NewPCG(seed+uint64(epoch), samplerStream)
	offset = int(shuffle.Below(rng, uint64(context)))
	order = make([]uint32, windows)
	for i := range order {
		order[i] = uint32(i)
	}
	shuffle.Slice(rng, order)
	return offset, order
}
