package step_test

import (
	"errors"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/cage-qat/cage/host/internal/testrun"
	"github.com/cage-qat/cage/host/train/step"
	"github.com/cage-qat/cage/internal/guard"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/reference"
)

// TestRefreshPanics: a panic of the executor of refresh programs, which runs on goroutines
// of its own, ends the step with an error; it is not tolerated as a matrix without
// eigenvalues is.
func TestRefreshPanics(t *testing.T) {
	for delay, resumed := range map[int]bool{0: false, 1: false, 2: true} { // resumed before every update
		c := testrun.Compile(t, delayed(t, testrun.Carrier{}, delay))
		var fails atomic.Bool // read beside the steps
		c.SetExecutor(func(p *program.Program, in map[string]reference.Tensor) (map[string]reference.Tensor, error) {
			if fails.Load() {
				panic("a state that cannot be")
			}
			return reference.Run(p, in)
		})
		s := newState(t, c)
		var err error
		for i := 1; i <= 8 && err == nil; i++ {
			fails.Store(i > 2) // the first refresh is never late
			_, err = c.Step(s, batches(sgdConfig(t), 1, 1), step.Settings{Step: i, Rate: 0.1})
			if err == nil && resumed {
				s = throughCheckpoint(t, c, s)
			}
		}
		var caught *guard.PanicError
		if !resumed && (!errors.As(err, &caught) || caught.Executor != "refresh" || caught.Program == "") || err == nil || !strings.Contains(err.Error(), "a state that cannot be") {
			t.Errorf("delay %d, resumed %t: got %v", delay, resumed, err)
		}
	}
}
