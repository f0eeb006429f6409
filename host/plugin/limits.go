package plugin

import "github.com/cage-qat/cage/sdk/program"

// SiteLimits bounds the programs for a tensor of the given shape, in proportion to
// it, so that a mistake in a plugin is an error before anything is allocated and
// not a machine that swaps. With n elements, a value may have 64·n + 2²² of them,
// all values together 4096·n + 2³⁰, and products may take 1024·n·d + 2³⁴
// multiplications, d being the longest axis: far above what published quantizers
// and optimizers need.
func SiteLimits(shape []int) program.Limits {
	n := program.FloatType(shape...).Size()
	longest := int64(1)
	for _, d := range shape {
		longest = max(longest, int64(d))
	}
	return program.Limits{
		Elements: min(64*n+1<<22, program.MaxSize),
		Total:    4096*n + 1<<30,
		Work:     int64(min(1024*float64(n)*float64(longest)+1<<34, 1<<50)),
	}
}
