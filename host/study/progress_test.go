package study

import (
	"testing"
	"time"
)

// TestLeft: the pace is that of the steps done since the start, without those of earlier
// attempts.
func TestLeft(t *testing.T) {
	s, err := Parse("four.toml", []byte(`
		[base]
		model = {kind = "toy"}
		train = {steps = 100}
		schedule = {rate = 0.1}
		quantizer = {plugin = "grid"}
		[study]
		[[study.axes]]
		name = "seed"
		key = "seed"
		values = [0, 1, 2, 3]
	`))
	if err != nil {
		t.Fatal(err)
	}
	r := newRunner(s, RunOptions{}, Plan{Run: s.Cells})
	if left := r.left(); left != 0 {
		t.Errorf("%v are left before anything is known", left)
	}
	r.began = time.Now().Add(-10 * time.Second)
	first, second := s.Cells[0], s.Cells[1]
	r.states[first.ID], r.worked = Done, work(first.Config, 100)
	r.states[second.ID] = Running
	a := &active{cell: second, from: 50}
	a.record.Step = 75
	r.active = append(r.active, a)
	// 125 steps in 10 seconds, and 25 + 100 + 100 to go.
	if left := r.left(); (left - 18*time.Second).Abs() > 100*time.Millisecond {
		t.Errorf("%v are left, want 18 s", left)
	}
}
