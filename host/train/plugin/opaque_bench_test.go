package plugin

import (
	"testing"
	"time"

	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/spec"
)

// BenchmarkOpaqueAdamW measures a step of examples/plugins/opaque-adamw on 2²⁴ weights; best-GB/s
// is the rate of the fastest step. The bytes are those that AdamW reads and writes, without x,
// which it does not read.
func BenchmarkOpaqueAdamW(b *testing.B) {
	const tensors, rows, columns = 8, 1024, 2048
	finder, err := NewFinder()
	if err != nil {
		b.Fatal(err)
	}
	exe, err := finder.Find(b.Context(), "../../../examples/plugins/opaque-adamw")
	if err != nil {
		b.Fatal(err)
	}
	c, err := Start(b.Context(), exe, sdk.KindOptimizer, Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	values, err := c.Resolve(nil)
	if err != nil {
		b.Fatal(err)
	}
	var list []OpaqueTensor
	for i := range tensors {
		shape := []int{rows, columns}
		tensor := sdk.Tensor{Name: string(rune('a' + i)), Role: sdk.TensorMatrix, Shape: shape,
			Values: values}
		list = append(list, OpaqueTensor{Tensor: tensor,
			State: []spec.Tensor{{Name: "m", Shape: shape}, {Name: "v", Shape: shape}}, RateFactor: 1})
	}
	s, err := NewStepper(b.Context(), c, list)
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	for _, t := range list {
		in, _ := s.Buffers(t.Name)
		g := in[program.KindGivenGradient.Of(t.Name)]
		for i := range g {
			g[i] = float32(i%1000-500) / 1000
		}
	}
	step := 0
	run := func(b *testing.B, bytes int64, f func() error) {
		b.SetBytes(bytes)
		best := time.Hour
		for b.Loop() {
			began := time.Now()
			if err := f(); err != nil {
				b.Fatal(err)
			}
			best = min(best, time.Since(began))
		}
		b.ReportMetric(float64(bytes)/float64(best), "best-GB/s")
	}
	next := func() error {
		step++
		return s.Step(step, 1<<20, 1e-3, 1)
	}
	for range 2 { // touch all pages
		if err := next(); err != nil {
			b.Fatal(err)
		}
	}
	const size = 4 * tensors * rows * columns
	b.Run("step", func(b *testing.B) {
		run(b, (6+3)*size, next) // reads g, m, v; writes m, v, u, which the host then reads
	})
}

// BenchmarkSearch measures a search that adds 2²⁴ weights to as many numbers of state, and the
// copies of the host alone. The bytes are those that are read and written.
func BenchmarkSearch(b *testing.B) {
	const sites, rows, columns = 8, 1024, 2048
	c := start(b, "search", sdk.KindQuantizer, Options{})
	values, err := c.Resolve(nil)
	if err != nil {
		b.Fatal(err)
	}
	var list []SearchedSite
	var weights []string
	for i := range sites {
		site := sdk.Site{Role: sdk.RoleWeight, Product: sdk.ProductForward, Name: string(rune('a' + i)),
			Shape: []int{rows, columns}, Values: values}
		answer, err := sdk.BuildQuantizer(testSearch{}, site)
		if err != nil {
			b.Fatal(err)
		}
		list, weights = append(list, SearchedSite{Site: site, Answer: answer}), append(weights, site.Name)
	}
	s, err := NewSearcher(b.Context(), c, list, 1)
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	const size = 4 * sites * rows * columns
	run := func(b *testing.B, bytes int64, f func() error) {
		b.SetBytes(bytes)
		best := time.Hour
		for b.Loop() {
			began := time.Now()
			if err := f(); err != nil {
				b.Fatal(err)
			}
			best = min(best, time.Since(began))
		}
		b.ReportMetric(float64(bytes)/float64(best), "best-GB/s")
	}
	search := func() error { return s.Search(b.Context(), 0, weights) }
	for range 2 { // touch all pages
		if err := search(); err != nil {
			b.Fatal(err)
		}
	}
	// reads x and s, writes s, and reads it once more
	b.Run("search", func(b *testing.B) { run(b, 4*size, search) })
	// the copies of the host: x and s to the plugin, s from it
	b.Run("exchange", func(b *testing.B) {
		x := make([]float32, size/4)
		run(b, 6*size, func() error {
			for i, w := range weights {
				part := x[i*rows*columns:][:rows*columns]
				in, out := s.Buffers(w)
				state := program.KindQuantizerState.PartOf(w, "s")
				copy(in[program.KindParam.Of(w)], part)
				copy(in[state], part)
				copy(part, out[state])
			}
			return nil
		})
	})
}
