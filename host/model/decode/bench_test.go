package decode_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/cage-qat/cage/host/compute/device"
	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/model"
	"github.com/cage-qat/cage/host/model/architecture"
	"github.com/cage-qat/cage/host/model/decode"
)

// BenchmarkNext reads one token of each sequence after 150 others, with the sizes of SmolLM2-135M
// and weights that are exact in bfloat16.
func BenchmarkNext(b *testing.B) {
	s := architecture.Settings{Kind: architecture.KindLlama, Layers: 30, Width: 576, Heads: 9,
		KVHeads: 3, Hidden: 1536, Vocab: 49152, Context: 2048, Head: "tied"}
	m, err := model.New(s, model.Options{})
	if err != nil {
		b.Fatal(err)
	}
	weights := map[string][]float32{}
	rng := rand.New(rand.NewPCG(1, 2))
	for _, p := range m.Params() {
		weights[p.Name] = make([]float32, p.Size())
		for i := range weights[p.Name] {
			weights[p.Name][i] = math.Float32frombits(math.Float32bits(rng.Float32()-0.5) &^ (1<<16 - 1))
		}
	}
	dev, err := engine.Open(device.CPU, engine.Options{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { dev.Close() })
	for _, halves := range []bool{false, true} {
		n, err := decode.New(m.(model.Language), weights,
			decode.Options{Parallel: dev.Parallel, Halves: halves})
		if err != nil {
			b.Fatal(err)
		}
		for _, sequences := range []int{1, 8} {
			b.Run(fmt.Sprintf("halves=%t, %d sequences", halves, sequences), func(b *testing.B) {
				const length, start = 256, 150
				caches := make([][]float32, 2*s.Layers)
				for i := range caches {
					caches[i] = make([]float32, sequences*s.KVHeads*length*s.Width/s.Heads)
				}
				at := decode.Positions{Length: length, Start: start, First: make([]int32, sequences)}
				for b.Loop() {
					if _, err := n.Next(make([]int32, sequences), at, caches, nil); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(float64(sequences*b.N)/b.Elapsed().Seconds(), "tokens/s")
			})
		}
	}
}
