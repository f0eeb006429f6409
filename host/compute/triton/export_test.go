package triton

import (
	"maps"
	"slices"

	"github.com/cage-qat/cage/sdk/program"
)

// Operations lists what kernels have, in the order of their numbers.
func Operations() []program.Op { return slices.Sorted(maps.Keys(rules)) }

// SetResidentWarps makes kernels of so few instances that small tests have several tiles for each,
// until the returned function is called.
func SetResidentWarps(n int) (restore func()) {
	before := residentWarps
	residentWarps = n
	return func() { residentWarps = before }
}
