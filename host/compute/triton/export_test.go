package triton

import (
	"maps"
	"slices"

	"github.com/cage-qat/cage/sdk/program"
)

// Operations lists what kernels have, in the order of their numbers.
func Operations() []program.Op { return slices.Sorted(maps.Keys(rules)) }
