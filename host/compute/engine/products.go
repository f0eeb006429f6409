package engine

import (
	"math"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/gomlx/core/graph"
)

// LongestIntegers is the largest number of products of two numbers from −127 to 127 whose sum always fits int32.
const LongestIntegers = math.MaxInt32 / (127 * 127)

// DotIntegers returns a·bᵀ, int32 [m, n], for two int8 nodes [m, k] and [n, k]. It is exact for k up to
// [LongestIntegers] if neither contains −128.
func DotIntegers(a, b *graph.Node) *graph.Node {
	if OnCPU(a.Graph()) { // it adds up in the type of the operands
		a, b = graph.ConvertDType(a, dtypes.Int32), graph.ConvertDType(b, dtypes.Int32)
	}
	return graph.Dot(a, b).WithOutputDType(dtypes.Int32).General([]int{1}, nil, []int{1}, nil)
}
