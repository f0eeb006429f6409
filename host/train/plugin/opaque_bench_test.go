package plugin

import (
	"testing"
	"time"

	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/answer"
)

// BenchmarkOpaqueAdamW is a step of examples/plugins/opaque-adamw on 2²⁴ weights; best-GB/s is the fastest of the steps. Bytes are those that AdamW reads and
// writes: x is not among them, which it does not read.
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
		tensor := sdk.Tensor{Name: string(rune('a' + i)), Role: sdk.TensorMatrix, Shape: shape, Values: values}
		list = append(list, OpaqueTensor{Tensor: tensor, State: []answer.Tensor{{Name: "m", Shape: shape}, {Name: "v", Shape: shape}}, RateFactor: 1})
	}
	s, err := NewStepper(b.Context(), c, list)
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	for _, t := range list {
		_, g := s.Given(t.Name)
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
		run(b, (6+3)*size, next) // g, m, v, and m, v, u, which are then looked at
	})
	b.Run("check", func(b *testing.B) {
		run(b, 3*size, func() error { return s.check(s.odd) })
	})
}
