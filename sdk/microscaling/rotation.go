package microscaling

import (
	"math/bits"
	"strconv"
	"strings"

	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/program"
)

// NoRotation is the setting of [NewRotation] for no rotation.
const NoRotation = "none"

// Rotation is the order n of a Hadamard matrix. Each n consecutive entries of a row are
// multiplied by the matrix, which spreads outliers before the tensor is divided into
// blocks. The matrix is symmetric and its own inverse.
type Rotation int

// NewRotation parses the setting of a plugin, [NoRotation] or a power of two such as "32", for rows
// whose length must be a multiple of it. The error message also lists others, the settings that the
// plugin handles itself.
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
		return 0, sdk.Refuse("rotation = %q: blocks of %d do not divide the row length %d; "+
			"the largest that do have %d", setting, order, row, largest)
	}
	return Rotation(order), nil
}

// Apply rotates the rows of v; applied twice, it is the identity.
func (r Rotation) Apply(v program.Value) program.Value {
	if r == 1 {
		return v
	}
	return v.Hadamard(int(r))
}
