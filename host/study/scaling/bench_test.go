package scaling

import (
	"math/rand/v2"
	"testing"
)

// BenchmarkRun fits 60 points from all starting points, without a bootstrap, on one core.
func BenchmarkRun(b *testing.B) {
	random := rand.New(rand.NewPCG(1, 1))
	points := synthesize(random, truth(random), wideSizes, wideRatios, 1e-3)
	o := Defaults()
	o.Bootstrap, o.Workers = 0, 1
	for b.Loop() {
		fitOrFail(b, points, o)
	}
}
