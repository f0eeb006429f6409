package step_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/cage-qat/cage/host/compute/refresh"
	"github.com/cage-qat/cage/host/internal/testrun"
	"github.com/cage-qat/cage/host/train/step"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/reference"
)

// TestFailedRefreshDelay: a refresh that fails is reported when it would have taken
// effect, also by a run that was resumed meanwhile. The fourth in a row ends the run.
func TestFailedRefreshDelay(t *testing.T) {
	c := testrun.Compile(t, delayed(t, clock{}, 1))
	c.SetExecutor(func(p *program.Program, in map[string]reference.Tensor) (map[string]reference.Tensor, error) {
		if at := counted(in); at != 2 && at != 7 {
			return nil, errors.New("no convergence")
		}
		return reference.Run(p, in)
	})
	s := newState(t, c)
	note := "state/" + c.Plan().Model.Params()[0].Name + "/note"
	for i := 1; ; i++ { // refreshes are due at 2, 4, 7, 10, 13, 16, 19 and late from the second on
		res, err := c.Step(s, batches(sgdConfig(t), 1, 1), step.Settings{Step: i, Rate: 0.1})
		if i == 20 {
			if err == nil || !strings.Contains(err.Error(), "failed 4 times in a row: no convergence") {
				t.Errorf("the fourth failure in a row: %v", err)
			}
			return
		}
		if err != nil {
			t.Fatalf("update %d: %v", i, err)
		}
		want := 0
		if i == 5 || i == 11 || i == 14 || i == 17 {
			want = len(c.Plan().Rules)
		}
		if got := len(res.FailedRefreshes); got != want {
			t.Errorf("update %d: %d refreshes failed, want %d", i, got, want)
		}
		if i == 10 {
			if pending := s.Pending.Records(); len(pending) == 0 || pending[0].Failed != "no convergence" || pending[0].Step != 10 || pending[0].Due != 11 {
				t.Errorf("after update %d there are pending %+v", i, pending)
			}
		}
		s = throughCheckpoint(t, c, s)
		if want := map[bool]float32{false: 21, true: 70}[i >= 8]; i >= 2 && testrun.Download(t, c, s)[note][0] != want {
			t.Errorf("after update %d the note is %v, want %v", i, testrun.Download(t, c, s)[note][0], want)
		}
	}
}

// TestRestoreRefreshesOfAnother: the refreshes of a checkpoint must be those of the plan.
func TestRestoreRefreshesOfAnother(t *testing.T) {
	c := testrun.Compile(t, delayed(t, clock{}, 1))
	s := newState(t, c)
	name := c.Plan().Rules[0].Name
	none := func(name string) (step.Tensor, error) {
		return step.Tensor{}, fmt.Errorf("there is no tensor %s", name)
	}
	for want, p := range map[string]refresh.Record{
		"is none of this run":                            {Tensor: "another", Step: 4, Due: 5},
		"from update 5 to 5, is none":                    {Tensor: name, Step: 5, Due: 5},
		"no tensor refresh/" + name + "/" + "state.note": {Tensor: name, Step: 4, Due: 5},
	} {
		if err := c.RestoreRefreshes(s, []refresh.Record{p}, none); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want it to say %q", p, err, want)
		}
	}
	other := func(name string) (step.Tensor, error) {
		return step.Tensor{Name: name, Dims: []int{2}, Data: []float32{1, 2}}, nil
	}
	err := c.RestoreRefreshes(s, []refresh.Record{{Tensor: name, Step: 4, Due: 5}}, other)
	if err == nil || !strings.Contains(err.Error(), "has shape [2], the run needs []") {
		t.Errorf("a tensor of another shape: %v", err)
	}
	plan := delayed(t, clock{}, 3)
	if _, err := step.Compile(testrun.Device(t), plan); err == nil || !strings.Contains(err.Error(), "refreshes are due every 3") {
		t.Errorf("a delay as long as the interval: %v", err)
	}
}
