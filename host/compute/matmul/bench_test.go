package matmul

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/cage-qat/cage/host/compute/loops"
)

// benchmarked lists products that occur in training: square ones, a linear layer (contracted over
// the weight's rows), the gradients of its weight (contracted over tokens) and of its input, and
// attention.
var benchmarked = []struct {
	name string
	shape
}{
	{"128", square(128, 128, 128)},
	{"256", square(256, 256, 256)},
	{"512", square(512, 512, 512)},
	{"1024", square(1024, 1024, 1024)},
	{"2048", square(2048, 2048, 2048)},
	{"linear2048x256x256", shape{m: []int{2048}, n: []int{256}, k: []int{256}}},
	{"linear2048x768x256", shape{m: []int{2048}, n: []int{768}, k: []int{256}}},
	{"dW256x768x2048", shape{m: []int{256}, n: []int{768}, k: []int{2048}, left: []int{1, 0},
		right: []int{1, 0}}},
	{"dX2048x256x768", shape{m: []int{2048}, n: []int{256}, k: []int{768}, right: []int{1, 0}}},
	{"attention32x256x256x64", shape{batch: []int{32}, m: []int{256}, n: []int{256}, k: []int{64}}},
	{"values32x256x64x256", shape{batch: []int{32}, m: []int{256}, n: []int{64}, k: []int{256},
		right: []int{0, 2, 1}}},
}

func BenchmarkProduct(b *testing.B) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, tier := range Tiers() {
		for _, c := range benchmarked {
			for _, kind := range []struct {
				name  string
				a     Arithmetic
				value func() float64
			}{
				{"float32", Float32, normal(r)}, {"bfloat16", BFloat16, normal(r)},
				{"8bit", Int8, codes(r, 127)},
			} {
				for _, workers := range []int{1, 2} {
					b.Run(fmt.Sprintf("%s/%s/%s/%d", tier.name, kind.name, c.name, workers), func(b *testing.B) {
						l, rl := c.layouts()
						of := "float32"
						if kind.a == Int8 {
							of = "int8"
						}
						x, y := elements(b, of, reaches(b, l), false, kind.value),
							elements(b, of, reaches(b, rl), false, kind.value)
						p := plan(b, tier, kind.a, c.shape)
						out := make([]float32, p.Size())
						parallel := loops.InOrder
						if workers > 1 {
							parallel = goroutines(workers)
						}
						for b.Loop() {
							run1(b, p, out, x, y, parallel)
						}
						b.ReportMetric(2*float64(p.Size())*float64(p.k)*float64(b.N)/b.Elapsed().Seconds()/1e9,
							"GFLOP/s")
					})
				}
			}
		}
	}
}
