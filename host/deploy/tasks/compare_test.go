package tasks_test

import (
	"math"
	"testing"

	"github.com/cage-qat/cage/host/deploy/tasks"
	"github.com/cage-qat/cage/host/study"
)

// TestOnlyBetter compares models on 100 items. The first has 59 right and the second 51: 9 only the
// first, 1 only the second.
func TestOnlyBetter(t *testing.T) {
	c := tasks.Comparison{}
	for i := range 100 {
		right := func(is bool) float64 { return map[bool]float64{true: 1}[is] }
		c.First = append(c.First, right(i < 59))
		c.Second = append(c.Second, right(i >= 9 && i < 59 || i == 99))
	}
	if first, second := c.OnlyBetter(); first != 9 || second != 1 {
		t.Errorf("%d and %d items are better for one model, want 9 and 1", first, second)
	}
	d := study.Pair(c.First, c.Second, study.Level)
	// The differences have the mean 0.08 and the variance (10 − 100·0.08²)/99.
	half := 1.9842 * math.Sqrt((10-0.64)/99/100)
	if math.Abs(d.Mean-0.08) > 1e-12 || math.Abs(d.Low-0.08+half) > 1e-4 ||
		math.Abs(d.High-0.08-half) > 1e-4 {
		t.Errorf("the difference is %v [%v, %v], want 0.08 ± %v", d.Mean, d.Low, d.High, half)
	}
}
