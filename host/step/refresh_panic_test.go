package step_test

import (
	"errors"
	"testing"

	"github.com/cage-qat/cage/host/internal/testrun"
	"github.com/cage-qat/cage/host/step"
	"github.com/cage-qat/cage/internal/guard"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/reference"
)

// TestRefreshPanics: a panic of the executor of refresh programs, which runs on goroutines
// of its own, ends the step with an error; it is not tolerated as a matrix without
// eigenvalues is.
func TestRefreshPanics(t *testing.T) {
	for _, delay := range []int{0, 1} {
		k := testrun.Compile(t, delayed(t, carrier{}, delay))
		fails := false
		k.SetExecutor(func(p *program.Program, in map[string]reference.Tensor) (map[string]reference.Tensor, error) {
			if fails {
				panic("a state that cannot be")
			}
			return reference.Run(p, in)
		})
		s := newState(t, k)
		var err error
		for i := 1; i <= 8 && err == nil; i++ {
			fails = i > 2 // the first refresh is never late
			_, err = k.Step(s, batches(sgdConfig(t), 1, 1), step.Settings{Step: i, Rate: 0.1})
		}
		var caught *guard.PanicError
		if !errors.As(err, &caught) || caught.Executor != "reference" || caught.Program == "" {
			t.Errorf("delay %d: got %v", delay, err)
		}
	}
}
