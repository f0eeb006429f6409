package serve

import "testing"

// TestSmoothed checks that the window is narrow at first, and that means recover from a huge value.
func TestSmoothed(t *testing.T) {
	var c curve
	for step := range 1000 {
		y := 3.0
		switch step {
		case 0:
			y = 11
		case 500:
			y = 1e20
		}
		c.add(step, y)
	}
	list := c.smoothed(c.points())
	for i, want := range map[int]float64{0: 11, 250: 3, 600: 3, 999: 3} {
		if list[i] != want {
			t.Errorf("smoothed value %d is %v, want %v", i, list[i], want)
		}
	}
}
