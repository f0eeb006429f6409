package bench

import (
	"context"
	"fmt"
	"math"
)

// Point is one size of a scaling measurement.
type Point struct {
	Size       int     `json:"size"`
	Seconds    float64 `json:"seconds"` // of a step, median
	FLOPs      float64 `json:"flops_per_step"`
	PeakMemory int64   `json:"peak_memory_bytes"`
}

// Growth is how step time and memory grow with one of the sizes: each follows
// size^exponent, fitted by least squares on logarithms.
type Growth struct {
	Dimension string  `json:"dimension"` // width, layers, context or batch
	Points    []Point `json:"points"`
	Time      float64 `json:"time_exponent"`
	FLOPs     float64 `json:"flops_exponent"`
	Memory    float64 `json:"memory_exponent"`
}

// Scale measures the growth along one dimension at two sizes or more. measure runs one
// size in a process of its own, as memory is measured for whole processes.
func Scale(ctx context.Context, dimension string, sizes []int, measure func(ctx context.Context, size int) (Point, error)) (Growth, error) {
	g := Growth{Dimension: dimension}
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

// exponent fits y = c·size^k and returns k.
func exponent(points []Point, y func(Point) float64) float64 {
	var n, sx, sy, sxx, sxy float64
	for _, p := range points {
		a, b := math.Log(float64(p.Size)), math.Log(y(p))
		n, sx, sy, sxx, sxy = n+1, sx+a, sy+b, sxx+a*a, sxy+a*b
	}
	return (n*sxy - sx*sy) / (n*sxx - sx*sx)
}
