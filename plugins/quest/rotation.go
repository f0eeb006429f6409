package main

import (
	"math/bits"
	"strconv"

	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/program"
)

// The values of the parameter rotation besides numbers.
const (
	rotateAuto = "auto"
	rotateFull = "full"
	rotateNone = "none"
)

// rotationBlock is the order of the Hadamard matrix for rows of length d; 1 means
// no rotation. The paper rotates by a matrix as large as the row. In natural order such a
// matrix exists only for powers of two, so auto takes the largest power of two that
// divides d.
func rotationBlock(rotation string, d int) (int, error) {
	largest := 1 << bits.TrailingZeros(uint(d))
	switch rotation {
	case rotateAuto:
		return largest, nil
	case rotateNone:
		return 1, nil
	case rotateFull:
		if largest != d {
			return 0, sdk.Refuse("rotation = %q: the row length %d is not a power of two; %q would rotate blocks of %d", rotation, d, rotateAuto, largest)
		}
		return d, nil
	}
	block, err := strconv.Atoi(rotation)
	if err != nil || block < 1 || bits.OnesCount(uint(block)) != 1 {
		return 0, sdk.Refuse("rotation = %q: want %s, %s, %s or a power of two such as \"128\"", rotation, rotateAuto, rotateFull, rotateNone)
	}
	if d%block != 0 {
		return 0, sdk.Refuse("rotation = %q: blocks of %d do not divide the row length %d; the largest that do have %d", rotation, block, d, largest)
	}
	return block, nil
}

// rotate applies the block-diagonal Hadamard matrix, which is its own inverse and
// transpose, to every row.
func rotate(v program.Value, block int) program.Value {
	if block == 1 {
		return v
	}
	return v.Hadamard(block)
}
