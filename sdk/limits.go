package sdk

import "github.com/cage-qat/cage/sdk/program"

// SiteLimits bounds each program for a quantizer's site of the given shape, in
// proportion to it, so that a mistake in a plugin is an error before anything is
// allocated and not a machine that swaps. With n elements, a value may have 64·n +
// 2²² of them, all values together 4096·n + 2³⁰, constants 4·n + 2¹⁶ and at most 2²²,
// and products may take 1024·n·d + 2³⁴ multiplications, d being the longest axis: far
// above what published quantizers need. Hosts refuse what exceeds it.
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
		// The host keeps them for as long as a run lasts, of each site.
		Constants: min(4*n+1<<16, mostConstants),
	}
}

// mostConstants is how many elements the constants of a program have at most.
const mostConstants = 1 << 22

// TensorLimits bounds each program of an optimizer for a tensor of the given shape.
// To [SiteLimits] it adds what preconditioners need, a d×d matrix for each axis of
// d and its factorization: 4·Σd² elements of one value and of constants, 256·Σd² of all
// values together, and 64·Σd³ multiplications.
func TensorLimits(shape []int) program.Limits {
	l := SiteLimits(shape)
	var squares, cubes float64
	for _, dim := range shape {
		d := float64(dim)
		squares += d * d
		cubes += d * d * d
	}
	l.Elements = int64(min(float64(l.Elements)+4*squares, program.MaxSize))
	l.Total = int64(min(float64(l.Total)+256*squares, 1<<50))
	l.Constants = int64(min(float64(l.Constants)+4*squares, mostConstants))
	l.Work = int64(min(float64(l.Work)+64*cubes, 1<<50))
	return l
}
