package lower_test

import (
	"math/rand/v2"
)

func randomFloats(n int) []float32 {
	rng := rand.New(rand.NewPCG(1, 7))
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(rng.NormFloat64())
	}
	return x
}
