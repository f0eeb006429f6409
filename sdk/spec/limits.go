package spec

import "github.com/cage-qat/cage/sdk/program"

// SiteLimits returns the limits of each program for a quantizer's site of the given shape. They
// grow with the shape, so that a mistake in a plugin is reported before anything is allocated. With
// n elements and a longest axis of d, one value may have 64·n + 2²² elements, all values together
// 4096·n + 2³⁰, and constants 4·n + 2¹⁶ but never more than 2²²; products may take 1024·n·d + 2³⁴
// multiplications. Published quantizers need far less.
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
		// The host keeps the constants of every site for as long as a run lasts.
		Constants: min(4*n+1<<16, maxConstants),
	}
}

const maxConstants = 1 << 22

// TensorLimits returns the limits of each program of an optimizer for a tensor of the given shape.
// They add to [SiteLimits] an allowance for preconditioners, a d×d matrix for each axis of length
// d: 4·Σd² elements for one value and for constants, 256·Σd² for all values, and 64·Σd³
// multiplications.
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
	l.Constants = int64(min(float64(l.Constants)+4*squares, maxConstants))
	l.Work = int64(min(float64(l.Work)+64*cubes, 1<<50))
	return l
}
