package study

import (
	"testing"
	"time"

	"github.com/cage-qat/cage/host/train/console"
	"github.com/cage-qat/cage/host/train/rundir"
)

// TestLeft checks that the remaining time is estimated from the steps done since the start, without
// those of earlier attempts.
func TestLeft(t *testing.T) {
	s := parsed(t, "four.toml", `
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
	`)
	r := newRunner(s, RunOptions{}, Plan{Run: s.Cells})
	if left := r.left(); left != 0 {
		t.Errorf("%v are left before anything is known", left)
	}
	r.began = time.Now().Add(-10 * time.Second)
	first, second := s.Cells[0], s.Cells[1]
	r.states[first.ID], r.worked = Done, first.work(100)
	r.states[second.ID] = Running
	a := &active{cell: second, from: 50}
	a.record.Step = 75
	r.active = append(r.active, a)
	// 125 steps in 10 seconds, and 25 + 100 + 100 to go.
	if left := r.left(); (left - 18*time.Second).Abs() > 100*time.Millisecond {
		t.Errorf("%v are left, want 18 s", left)
	}
	r.plan.Run, r.plan.Waiting = s.Cells[:3], s.Cells[3:] // the last one waits for a choice
	if left := r.left(); (left - 18*time.Second).Abs() > 100*time.Millisecond {
		t.Errorf("%v are left where a cell waits, want 18 s", left)
	}
}

// TestRefreshKeeps checks that the display does not fall back to step 0 if the records of a cell
// cannot be read for a moment.
func TestRefreshKeeps(t *testing.T) {
	a := &active{dir: rundir.At(t.TempDir())}
	a.record.Step = 75
	if a.refresh(); a.record.Step != 75 {
		t.Errorf("step %d without records, want 75", a.record.Step)
	}
}

// TestRetriesLeft checks that failed cells that are to be tried again are not counted as ended.
func TestRetriesLeft(t *testing.T) {
	s := parsed(t, "two.toml", `
		[base]
		model = {kind = "toy"}
		train = {steps = 100}
		schedule = {rate = 0.1}
		quantizer = {plugin = "grid"}
		[study]
		[[study.axes]]
		name = "seed"
		key = "seed"
		values = [0, 1]
	`)
	failed := Plan{Results: []Result{
		{Cell: s.Cells[0], State: Done}, {Cell: s.Cells[1], State: Failed},
	}}
	var shown console.Progress
	o := RunOptions{Watch: func(p console.Progress) { shown = p }}
	if newRunner(s, o, failed).show(console.Progress{}); shown.Done != 1 || shown.Failed != 1 {
		t.Errorf("without a retry: %+v", shown)
	}
	failed.Run = s.Cells[1:]
	if newRunner(s, o, failed).show(console.Progress{}); shown.Done != 1 || shown.Failed != 0 {
		t.Errorf("before the retry: %+v", shown)
	}
}
