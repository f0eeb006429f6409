package train

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cage-qat/cage/host/checkpoint"
	"github.com/cage-qat/cage/host/safetensors"
)

// longestWait bounds the steps between two tries to save a checkpoint.
const longestWait = 1024

// saving is the account of a run's checkpoints.
type saving struct {
	step  int       // of the newest, -1 for none
	at    time.Time // of the newest, or of the first step
	retry int       // step at which one that could not be saved is tried again, 0 for none
	wait  int       // steps between the last two tries
}

// done notes that the state after a step is saved.
func (s *saving) done(step int) { *s = saving{step: step, at: time.Now()} }

// failed notes that it could not be saved, and doubles the steps until the next try.
func (s *saving) failed(step int) {
	s.wait = min(max(1, 2*s.wait), longestWait)
	s.retry = step + s.wait
}

// saveDue tells whether a checkpoint follows the step just done.
func (r *run) saveDue() bool {
	t, c := r.done.Step, r.cfg.Train
	if c.CheckpointEvery > 0 && t%c.CheckpointEvery == 0 {
		return true
	}
	if r.saving.retry > 0 {
		return t >= r.saving.retry
	}
	return c.CheckpointMinutes > 0 && time.Since(r.saving.at).Minutes() >= c.CheckpointMinutes
}

// saveIfDue saves the checkpoint that follows the step just done. One that cannot be
// saved is tried again some steps later, while the run goes on.
func (r *run) saveIfDue() error {
	if !r.saveDue() {
		return nil
	}
	err := r.save()
	if err == nil || mustNotSave(err) {
		return err
	}
	if r.saving.step == r.done.Step { // it is saved, but not the records
		if len(r.records.unwritten) > 0 {
			return nil // they wait, and are in the checkpoint
		}
		return err
	}
	r.saving.failed(r.done.Step)
	r.log.Warn("the checkpoint could not be saved: training goes on", "step", r.done.Step, "next_try_after_step", r.saving.retry, "error", err)
	return nil
}

// mustNotSave tells whether an error says that nothing of this run is to be saved.
func mustNotSave(err error) bool { return errors.Is(err, ErrReplaced) || errors.Is(err, errData) }

// saveLast saves what there is when the steps have ended, by an error or without one,
// and returns what is to be said of the steps.
func (r *run) saveLast(err error) error {
	if mustNotSave(err) {
		return err
	}
	if !r.state.Whole() {
		return fmt.Errorf("%w\nThis step failed half-way, so that its state cannot be saved; the newest checkpoint is %s", err, r.newest())
	}
	saveErr := r.save()
	interrupted := errors.Is(err, ErrInterrupted)
	if saveErr != nil && interrupted {
		err = nil // that an interrupted run can go on is not to be said now
	}
	switch {
	case mustNotSave(saveErr):
		return errors.Join(err, saveErr)
	case saveErr != nil && r.saving.step != r.done.Step:
		return errors.Join(err, fmt.Errorf("save the checkpoint of step %d: %w; the newest one is %s", r.done.Step, saveErr, r.newest()))
	case saveErr == nil && (err == nil || interrupted || errors.Is(err, ErrNotFinite)):
		return err
	}
	return r.resumable(errors.Join(err, saveErr))
}

// resumable adds to an error that nothing of the steps done is lost.
func (r *run) resumable(err error) error {
	return fmt.Errorf("%w\nThe state after step %d is saved: --resume goes on from there", err, r.saving.step)
}

// newest says which checkpoint is the newest.
func (r *run) newest() string {
	if r.saving.step < 0 {
		return "none"
	}
	return fmt.Sprintf("of step %d", r.saving.step)
}

// save writes a checkpoint of the present step and prunes the old ones. The data is
// verified by then. The records reach the disk first, so that a checkpoint never knows
// more than they do; where they cannot, it is saved all the same, and the error is
// theirs. An interruption waits until it is done.
func (r *run) save() error {
	if err := r.checkDirectory(); err != nil {
		return err
	}
	if err := r.awaitData(); err != nil {
		return err
	}
	if r.saving.step == r.done.Step {
		return nil
	}
	recorded := errors.Join(r.records.sync(), r.trajectory.sync())
	state, err := r.snapshot()
	if err == nil {
		err = r.checkpoints.Save(context.Background(), state)
	}
	if err != nil {
		return errors.Join(recorded, err)
	}
	r.saving.done(r.done.Step)
	r.prune()
	return recorded
}

// prune removes old checkpoints. Those that it cannot remove do no harm, and go later.
func (r *run) prune() {
	if err := r.checkpoints.Prune(); err != nil {
		r.log.Warn("old checkpoints could not be removed", "error", err)
	}
}

// snapshot is the present state as a checkpoint holds it.
func (r *run) snapshot() (checkpoint.State, error) {
	state := checkpoint.State{Step: r.done.Step, Meta: checkpoint.Meta{}}
	tensors, err := r.kernels.Download(r.state)
	if err != nil {
		return state, err
	}
	for _, t := range tensors {
		st, err := safetensors.New(t.Name, t.Dims, t.Data)
		if err != nil {
			return state, err
		}
		state.Tensors = append(state.Tensors, st)
	}
	return state, errors.Join(
		state.Meta.Set(identityKey, r.identity),
		state.Meta.Set("progress", r.done),
		state.Meta.Set("total_steps", r.cfg.Train.Steps),
		state.Meta.Set("seed", r.cfg.Seed),
		state.Meta.Set("build", r.device.BuildInfo()),
		r.saveMissing(&state),
		r.saveRefreshes(&state),
		r.movement.save(&state),
	)
}
