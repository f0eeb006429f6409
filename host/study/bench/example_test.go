package bench_test

import (
	"context"
	"fmt"

	"github.com/cage-qat/cage/host/study/bench"
)

// What takes four times as long at twice the size grows with the power 2.
func ExampleScale() {
	measure := func(_ context.Context, size int) (bench.Point, error) {
		n := float64(size)
		return bench.Point{Seconds: 1e-6 * n * n, FLOPs: 3 * n * n, PeakMemory: int64(size) << 10}, nil
	}
	g, err := bench.Scale(context.Background(), "width", []int{128, 256}, measure)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("time grows with the power %.1f, memory with %.1f\n", g.Time, g.Memory)
	// Output: time grows with the power 2.0, memory with 1.0
}
