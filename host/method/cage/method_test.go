package cage

import (
	"math"
	"testing"
)

func TestLambdaEdges(t *testing.T) {
	m := Method{Form: Decoupled, Variant: Paper, Lambda: 2, Silence: 0.9, Ramp: Linear}
	tests := []struct {
		name     string
		m        Method
		t, total int
		want     float64
	}{
		{"still silent at exactly s·T", m, 9, 10, 0},
		{"first step after the silence", m, 91, 100, 2 * (0.91 - 0.9) / (1 - 0.9)},
		{"λ exactly at the last step", m, 100, 100, 2},
		{"clamped past the end", m, 150, 100, 2},
		{"no silence still ramps", Method{Form: Coupled, Lambda: 4, Ramp: Linear}, 1, 4, 1},
		{"constant", Method{Form: Decoupled, Lambda: 3, Silence: 0.5, Ramp: Constant}, 51, 100, 3},
		{"off", Method{Form: Off, Lambda: 3, Ramp: Linear}, 100, 100, 0},
		{"no steps", m, 1, 0, 0},
	}
	for _, tt := range tests {
		if got := tt.m.LambdaAt(tt.t, tt.total); math.Abs(got-tt.want) > 1e-15 {
			t.Errorf("%s: λ_%d of %d = %v, want %v", tt.name, tt.t, tt.total, got, tt.want)
		}
	}
}

func TestLambdaIsMonotoneAndBounded(t *testing.T) {
	for _, silence := range []float64{0, 0.1, 0.5, 0.9, 0.999} {
		m := Method{Form: Decoupled, Lambda: 5, Silence: silence, Ramp: Linear}
		last := 0.0
		for step := 1; step <= 1000; step++ {
			l := m.LambdaAt(step, 1000)
			if l < last || l > 5 {
				t.Fatalf("s=%v: λ_%d = %v after %v", silence, step, l, last)
			}
			last = l
		}
		if last != 5 {
			t.Errorf("s=%v: λ_T = %v, want 5 exactly", silence, last)
		}
	}
}
