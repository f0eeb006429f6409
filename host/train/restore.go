package train

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/compute/refresh"
	"github.com/cage-qat/cage/host/train/checkpoint"
	"github.com/cage-qat/cage/host/train/provenance"
	"github.com/cage-qat/cage/host/train/step"
)

// restore goes on from a checkpoint of this run. When that fails the run is as it was
// before, so that an older checkpoint can be tried.
func (r *run) restore(f *checkpoint.File) error {
	made := &provenance.Record{Run: r.identity}
	if err := made.CheckOwner(r.dir, f.Step, f.Meta); err != nil {
		return err
	}
	identity, err := provenance.IdentityOf(f.Meta)
	if err != nil {
		return err
	}
	var done provenance.Progress
	var build engine.BuildInfo
	if err := errors.Join(f.Meta.Get(provenance.ProgressKey, &done), f.Meta.Get(provenance.BuildKey, &build)); err != nil {
		return err
	}
	state, err := r.Compiled.Upload(provenance.Tensors(f))
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
	if now := r.Device.BuildInfo(); build != now {
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
	return r.Compiled.RestoreRefreshes(state, pending, provenance.Tensors(f))
}
