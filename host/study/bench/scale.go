package bench

import (
	"context"
	"fmt"
	"math"
	"slices"

	"gonum.org/v1/gonum/stat"
)

// Point is one size of a scaling measurement.
type Point struct {
	Size       int     `json:"size"`
	Seconds    float64 `json:"seconds"` // median time of a step
	FLOPs      float64 `json:"flops_per_step"`
	PeakMemory int64   `json:"peak_memory_bytes"`
}

// Growth says how step time and memory grow with one of the sizes: each follows
// size^exponent, fitted by least squares on logarithms.
type Growth struct {
	Dimension string  `json:"dimension"` // width, layers, context or batch
	Points    []Point `json:"points"`
	Time      float64 `json:"time_exponent"`
	FLOPs     float64 `json:"flops_exponent"`
	Memory    float64 `json:"memory_exponent"`
}

// Scale measures the growth along one dimension at two or more different sizes. measure
// runs one size in a process of its own, because memory is measured for whole processes.
func Scale(ctx context.Context, dimension string, sizes []int, measure func(ctx context.Context, size int) (Point, error)) (Growth, error) {
	g := Growth{Dimension: dimension}
	if distinct := slices.Compact(slices.Sorted(slices.Values(sizes))); len(distinct) < 2 || distinct[0] < 1 {
		return g, fmt.Errorf("%s: sizes %v show no growth; want at least two different ones, of 1 or more", dimension, sizes)
	}
	for _, size := range sizes {
		p, err := measure(ctx, size)
		if err != nil {
			return g, fmt.Errorf("%s %d: %w", dimension, size, err)
		}
		p.Size = size
		g.Points = append(g.Points, p)
	}
	g.Time = exponent(g.Points, func(p Point) float64 { return p.Seconds })
	g.FLOPs = exponent(g.Points, func(p Point) float64 { return p.FLOPs })
	g.Memory = exponent(g.Points, func(p Point) float64 { return float64(p.PeakMemory) })
	return g, nil
}

// exponent fits y = c·size^k and returns k; 0 where a value is not known.
func exponent(points []Point, y func(Point) float64) float64 {
	var sizes, values []float64
	for _, p := range points {
		if !(y(p) > 0) {
			return 0
		}
		sizes, values = append(sizes, math.Log(float64(p.Size))), append(values, math.Log(y(p)))
	}
	_, k := stat.LinearRegression(sizes, values, nil, false)
	return k
}
