package train

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/compute/refresh"
	"github.com/cage-qat/cage/host/model/safetensors"
	"github.com/cage-qat/cage/host/train/checkpoint"
	"github.com/cage-qat/cage/host/train/step"
)

// restore goes on from a checkpoint of this run. When that fails the run is as it was
// before, so that an older checkpoint can be tried.
func (r *run) restore(f *checkpoint.File) error {
	made := &provenance{Run: r.identity}
	if err := made.checkOwner(r.dir, f.Step, f.Meta); err != nil {
		return err
	}
	identity, err := identityOf(f.Meta)
	if err != nil {
		return err
	}
	var done progress
	var build engine.BuildInfo
	if err := errors.Join(f.Meta.Get("progress", &done), f.Meta.Get("build", &build)); err != nil {
		return err
	}
	state, err := r.compiled.Upload(loader(f))
	if err != nil {
		return fmt.Errorf("checkpoint of step %d: %w", f.Step, err)
	}
	if err = r.restoreRefreshes(f, state); err == nil {
		err = r.restoreMovement(f)
	}
	if err != nil {
		state.Close()
		return fmt.Errorf("checkpoint of step %d: %w", f.Step, err)
	}
	if now := r.device.BuildInfo(); build != now {
		r.log.Warn("the checkpoint was written by another build: the bits of this run may differ from an uninterrupted one",
			"checkpoint", build.String(), "now", now.String())
	}
	r.state, r.done, r.identity, r.saving.step = state, done, cmp.Or(r.identity, identity), f.Step
	return nil
}

// refreshesKey is the entry of a checkpoint's metadata about refreshes whose results
// are not in place yet. There is none where there are no such refreshes.
const refreshesKey = "refreshes"

// failuresKey is the entry about refreshes in a row that failed, where there are any.
const failuresKey = "refresh_failures"

func (r *run) saveRefreshes(state *checkpoint.State) error {
	if pending := r.state.Pending.Records(); len(pending) > 0 {
		if err := state.Meta.Set(refreshesKey, pending); err != nil {
			return err
		}
	}
	if failures := r.state.Pending.Failures(); len(failures) > 0 {
		return state.Meta.Set(failuresKey, failures)
	}
	return nil
}

func (r *run) restoreRefreshes(f *checkpoint.File, state *step.State) error {
	var failures map[string]int
	var pending []refresh.Record
	if err := errors.Join(f.Meta.GetIf(failuresKey, &failures), f.Meta.GetIf(refreshesKey, &pending)); err != nil {
		return err
	}
	state.Pending.RestoreFailures(failures)
	return r.compiled.RestoreRefreshes(state, pending, loader(f))
}

// loader reads the tensors of a checkpoint by name.
func loader(f *checkpoint.File) func(string) (step.Tensor, error) {
	return func(name string) (step.Tensor, error) {
		t, err := f.Tensor(name)
		if err != nil {
			return step.Tensor{}, err
		}
		values, err := safetensors.Values[float32](t)
		return step.Tensor{Name: name, Dims: t.Shape, Data: values}, err
	}
}
