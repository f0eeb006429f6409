package microscaling

import (
	"math/bits"
	"strconv"
	"strings"

	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/program"
)

// NoRotation is the setting of [NewRotation] that leaves a tensor as it is.
const NoRotation = "none"

// Rotation is the order of a Hadamard matrix. Each run of that many entries of a row is
// multiplied by the matrix, which spreads outliers before the tensor is divided into
// blocks. The matrix is symmetric and its own inverse.
type Rotation int

// NewRotation reads the setting of a plugin, [NoRotation] or a power of two such as
// "32", for rows of the given length. The order has to divide it. others are settings that the
// plugin reads itself, for the message.
func NewRotation(setting string, row int, others ...string) (Rotation, error) {
	if setting == NoRotation {
		return 1, nil
	}
	order, err := strconv.Atoi(setting)
	if err != nil || order < 1 || bits.OnesCount(uint(order)) != 1 {
		return 0, sdk.Refuse("rotation = %q: want %s or a power of two such as \"32\"",
			setting, strings.Join(append(others, NoRotation), ", "))
	}
	if row%order != 0 {
		largest := 1 << bits.TrailingZeros(uint(row))
		return 0, sdk.Refuse("rotation = %q: blocks of %d do not divide the row length %d; the largest that do have %d", setting, order, row, largest)
	}
	return Rotation(order), nil
}

// Apply rotates the rows of v, or rotates them back.
func (r Rotation) Apply(v program.Value) program.Value {
	if r == 1 {
		return v
	}
	return v.Hadamard(int(r))
}
