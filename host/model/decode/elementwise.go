package decode

import (
	"math"

	"github.com/cage-qat/cage/host/compute/loops"
)

// softmax sets x to softmax(scale·x); to NaN if an element is NaN, or if the largest is infinite.
func softmax(x []float32, scale float32) {
	largest := float32(math.Inf(-1))
	for _, v := range x {
		if v > largest || v != v { // the builtin max is a tenth as fast
			if largest = v; v != v {
				break
			}
		}
	}
	if largest-largest != 0 {
		loops.Fill(x, float32(math.NaN()))
		return
	}
	loops.BinaryS(loops.Sub, x, x, largest)
	loops.ExpLin(x, x, scale, 0)
	var l loops.Lanes
	l.Reset(loops.Add)
	l.Sum(x)
	loops.BinaryS(loops.Mul, x, x, 1/float32(l.Fold(loops.Add)))
}

// swiGLU sets a to silu(a)·b, where silu(a) = a/(1 + exp(−a)).
func swiGLU(a, b []float32) {
	var part [512]float32
	for len(a) > 0 {
		n := min(len(a), len(part))
		gate := part[:n]
		loops.ExpLin(gate, a[:n], -1, 0)
		loops.IntoAddS(gate, gate, 1, 1)
		loops.MulMul(a[:n], a[:n], gate, b[:n])
		a, b = a[n:], b[n:]
	}
}

// geGLU sets a to gelu(a)·b, where gelu(a) = a/2·(1 + tanh(√(2/π)·(a + 0.044715·a³))).
func geGLU(a, b []float32) {
	for i, x := range a {
		u := 0.7978845608028654 * (float64(x) + 0.044715*float64(x)*float64(x)*float64(x))
		a[i] = float32(0.5*float64(x)*(1+math.Tanh(u))) * b[i]
	}
}
