package triton

import (
	"maps"
	"slices"

	"github.com/cage-qat/cage/sdk/program"
)

// Operations returns the operations that kernels support, in the order of their numbers.
func Operations() []program.Op { return slices.Sorted(maps.Keys(rules)) }

// SetResidentWarps limits the number of instances of kernels, so that each has several tiles in
// small tests, until the returned function is called.
func SetResidentWarps(n int) (restore func()) {
	before := residentWarps
	residentWarps = n
	return func() { residentWarps = before }
}
