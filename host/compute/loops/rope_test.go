package loops

import (
	"fmt"
	"math"
	"testing"
)

// TestRope compares Rope with a plain loop, for several numbers of points, and with the definition.
func TestRope(t *testing.T) {
	for _, points := range []int{1, 3, 8, 16, 20, 32, 45, 64} {
		for _, back := range []bool{false, true} {
			t.Run(fmt.Sprint(points, back), func(t *testing.T) {
				cos, sin := make([]float32, points), make([]float32, points)
				for i := range cos {
					cos[i], sin[i] = float32(math.Cos(float64(i))), float32(math.Sin(float64(i)))
				}
				x := make([]float32, 3*2*points)
				for i := range x {
					x[i] = float32(i%11) - 4.3
				}
				x[0], x[len(x)-1] = float32(math.NaN()), float32(math.Inf(1))
				x[points] = 0
				got, want := make([]float32, len(x)), make([]float32, len(x))
				Rope(got, x, cos, sin, back)
				for at := 0; at < len(x); at += 2 * points {
					for i := at; i < at+points; i++ {
						a, b, c, s := x[i], x[points+i], cos[i-at], sin[i-at]
						if back {
							s = -s
						}
						want[i], want[points+i] = float32(a*c)-float32(b*s), float32(b*c)+float32(a*s)
					}
				}
				if i := differs(got, want); i >= 0 {
					t.Fatalf("element %d is %v, want %v", i, got[i], want[i])
				}
				direction := 1.0
				if back {
					direction = -1
				}
				for i := range points {
					a, b := float64(x[2*points+i]), float64(x[3*points+i])
					angle := direction * float64(i)
					first, second := a*math.Cos(angle)-b*math.Sin(angle), a*math.Sin(angle)+b*math.Cos(angle)
					if math.Abs(float64(got[2*points+i])-first) > 1e-5 && points > 1 ||
						math.Abs(float64(got[3*points+i])-second) > 1e-5 && points > 1 {
						t.Errorf("point %d is %v, %v; want %v, %v", i, got[2*points+i], got[3*points+i], first,
							second)
					}
				}
			})
		}
	}
}

// TestRopeAdjacent checks that RopeAdjacent rotates pairs of adjacent elements exactly as Rope
// rotates pairs from both halves.
func TestRopeAdjacent(t *testing.T) {
	for _, points := range []int{1, 3, 8, 11, 16, 32, 45, 64} {
		for _, back := range []bool{false, true} {
			cos, sin := make([]float32, points), make([]float32, points)
			for i := range cos {
				cos[i], sin[i] = float32(math.Cos(float64(i))), float32(math.Sin(float64(i)))
			}
			pairs, halves := make([]float32, 3*2*points), make([]float32, 3*2*points)
			for i := range 3 * points {
				a, b := float32(i%11)-4.3, float32(i%7)-3
				if i == 1 {
					a, b = float32(math.NaN()), float32(math.Inf(1))
				}
				pairs[2*i], pairs[2*i+1] = a, b
				at := i/points*2*points + i%points
				halves[at], halves[at+points] = a, b
			}
			got, want := make([]float32, len(pairs)), make([]float32, len(pairs))
			RopeAdjacent(got, pairs, cos, sin, back)
			Rope(want, halves, cos, sin, back)
			for i := range 3 * points {
				at := i/points*2*points + i%points
				if j := differs(got[2*i:2*i+2], []float32{want[at], want[at+points]}); j >= 0 {
					t.Fatalf("%d points, back %v: coordinate %d of point %d is %v, want %v", points, back, j, i,
						got[2*i:2*i+2], []float32{want[at], want[at+points]})
				}
			}
		}
	}
}
