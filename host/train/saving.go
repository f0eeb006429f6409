package train

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/compute/refresh"
	"github.com/cage-qat/cage/host/model/safetensors"
	"github.com/cage-qat/cage/host/train/checkpoint"
	"github.com/cage-qat/cage/host/train/provenance"
	"github.com/cage-qat/cage/host/train/step"
)

const maxWait = 1024

type saving struct {
	step     int       // of the newest checkpoint, -1 for none
	at       time.Time // time of the newest checkpoint, or of the first step
	retry    int       // step of the next try after a failed save, 0 for none
	wait     int       // steps between the last two tries
	underway *save     // the save in progress, nil for none
}

type save struct {
	step int
	at   time.Time
	done chan struct{} // closed when err is known
	err  error
}

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

// saveIfDue starts to save a checkpoint if one is due after the step just done, and handles the
// result of the previous save. A failed save is retried some steps later, while training continues.
func (r *run) saveIfDue() error {
	r.collect(false)
	due := !r.follows() && r.saveDue()
	recorded, err := r.beginSave(due)
	if mustNotSave(err) || isLost(err) {
		return err
	}
	if err != nil {
		r.saveFailed(r.done.Step, errors.Join(recorded, err))
		return nil
	}
	if recorded == nil || len(r.records.unwritten) > 0 {
		return nil // the records are kept, also in the checkpoint
	}
	return recorded
}

func (r *run) saveFailed(step int, err error) {
	if isLost(err) {
		return
	}
	if r.follows() { // the first process schedules the next try
		r.log.Warn("this process could not write its part of the checkpoint",
			"step", step, "error", err)
		return
	}
	s := &r.saving
	s.wait = min(max(1, 2*s.wait), maxWait) // twice as many steps as before the last try
	s.retry = step + s.wait
	next := min(s.retry, r.cfg.Train.Steps)
	if every := r.cfg.Train.CheckpointEvery; every > 0 {
		next = min(next, (step/every+1)*every)
	}
	r.log.Warn("the checkpoint could not be saved: training continues",
		"step", step, "next_try_after_step", next, "error", err)
}

// collect handles the result of the save in progress if it has ended. If wait is set, it first
// waits for the end.
func (r *run) collect(wait bool) {
	s := r.saving.underway
	if s == nil {
		return
	}
	if !wait {
		select {
		case <-s.done:
		default:
			return
		}
	}
	if err := r.awaitSave(); err != nil {
		r.saveFailed(s.step, err)
	}
}

// awaitSave waits for the save in progress, if there is one, and returns its error.
func (r *run) awaitSave() error {
	s := r.saving.underway
	if s == nil {
		return nil
	}
	<-s.done
	r.saving.underway = nil
	if s.err == nil && !r.follows() {
		r.saving = saving{step: s.step, at: s.at}
	}
	return s.err
}

func mustNotSave(err error) bool { return errors.Is(err, ErrReplaced) || errors.Is(err, errData) }

func (r *run) saveLast(err error) error {
	r.collect(true)
	if mustNotSave(err) {
		return err
	}
	unsaved := func(reason string) error {
		return r.lostHint(fmt.Errorf("%w\n%s; the newest checkpoint is %s", err, reason, r.newest()))
	}
	interrupted := errors.Is(err, ErrInterrupted)
	failed := err != nil && !interrupted && !errors.Is(err, ErrNotFinite)
	if failed && r.divided() {
		return unsaved("Other processes hold parts of the state, so it could not be saved")
	}
	if r.follows() {
		switch failed := r.save(false); {
		case isLost(failed):
			err = failed
		case failed != nil:
			r.saveFailed(r.done.Step, failed)
		}
		return r.ending(err)
	}
	if !r.state.Consistent() {
		return unsaved("The step failed while replacing the state, so it could not be saved")
	}
	saveErr := r.save(true)
	if saveErr != nil && interrupted {
		err = nil // its message would claim that the run can be resumed
	}
	switch {
	case mustNotSave(saveErr):
		return errors.Join(err, saveErr)
	case saveErr != nil && r.saving.step != r.done.Step:
		saveErr = fmt.Errorf("save the checkpoint of step %d: %w; the newest one is %s",
			r.done.Step, saveErr, r.newest())
		return errors.Join(err, saveErr)
	case saveErr == nil && !failed:
		return err
	}
	return r.resumable(errors.Join(err, saveErr))
}

func (r *run) resumable(err error) error {
	return fmt.Errorf("%w\nThe state after step %d is saved: --resume continues from there",
		err, r.saving.step)
}

func (r *run) newest() string {
	if r.follows() {
		if entries, _ := checkpoint.List(r.dir.Checkpoints()); len(entries) > 0 {
			r.saving.step = entries[len(entries)-1].Step
		}
	}
	if r.saving.step < 0 {
		return "none"
	}
	return fmt.Sprintf("of step %d", r.saving.step)
}

// save writes a checkpoint of the current step and waits for it. It returns the error of writing
// the checkpoint or, if that succeeded, of writing the records.
func (r *run) save(due bool) error {
	recorded, err := r.beginSave(due)
	if err := r.awaitSave(); err != nil {
		return err
	}
	return errors.Join(recorded, err)
}

// beginSave starts to write a checkpoint of the current step if it is due and not yet saved, and to
// prune old ones. The records are synced first; if that fails, the error is returned in recorded,
// and the checkpoint has the missing records. The tensors are read while the next step computes its
// gradients; that step waits before it replaces them. If other processes have rows of the state,
// the first process decides for all whether to save, and each process writes its own part.
func (r *run) beginSave(due bool) (recorded, err error) {
	if due { // only after the previous checkpoint is written and the data is verified
		r.collect(true)
		if err = r.checkDirectory(); err == nil {
			err = r.awaitData()
		}
		due = err == nil && r.saving.step != r.done.Step
	}
	divided, mark := r.divided(), uint32(0)
	if divided {
		var lost error
		if mark, due, lost = r.agreeToSave(due); lost != nil {
			return nil, lost
		}
	}
	if err != nil || !due {
		return nil, err
	}
	r.collect(true) // one at a time, in every process
	state := checkpoint.State{Step: r.done.Step}
	if r.follows() {
		state.Tensors = r.ownTensors()
	} else {
		recorded = r.syncRecords()
		state, err = r.snapshot()
	}
	s := &save{step: state.Step, at: time.Now(), done: make(chan struct{}), err: err}
	r.saving.underway = s
	r.state.Hold(s.done)
	go func() {
		defer close(s.done)
		var parts []string
		if divided {
			parts, s.err = r.savePart(state, mark, s.err)
			state.Tensors = nil
		}
		if s.err == nil && !r.follows() {
			s.err = r.checkpoints.Save(context.Background(), state, parts...)
		}
		// Pruning also removes the parts of a checkpoint that could not be saved.
		if !r.follows() && (s.err == nil || divided && !isLost(s.err)) {
			r.prune()
		}
		if s.err != nil {
			s.err = errors.Join(recorded, s.err)
		}
	}()
	return recorded, nil
}

func (r *run) prune() {
	if err := r.checkpoints.Prune(); err != nil {
		r.log.Warn("old checkpoints could not be removed", "error", err)
	}
}

// snapshot returns the current state for a checkpoint. Its tensors are read when they are written.
func (r *run) snapshot() (checkpoint.State, error) {
	meta, err := provenance.Metadata(r.identity, r.done, r.Device.BuildInfo())
	state := checkpoint.State{Step: r.done.Step, Tensors: r.ownTensors(), Meta: meta}
	latest := r.display.latest.Step == state.Step && !r.logs(state.Step)
	return state, errors.Join(
		err,
		state.Meta.Set("total_steps", r.cfg.Train.Steps),
		state.Meta.Set("seed", r.cfg.Seed),
		setIf(&state, missingKey, r.records.missing(), len(r.records.missing()) > 0),
		setIf(&state, latestKey, r.display.latest, latest),
		setIf(&state, refreshesKey, r.state.Pending.Records(), len(r.state.Pending.Records()) > 0),
		setIf(&state, failuresKey, r.state.Pending.Failures, len(r.state.Pending.Failures) > 0),
		setIf(&state, unsearchedKey, true, r.state.Unsearched),
		r.movement.save(&state),
	)
}

func setIf(state *checkpoint.State, key string, value any, some bool) error {
	if !some {
		return nil
	}
	return state.Meta.Set(key, value)
}

// restore restores the run from one of its checkpoints. If it fails, the run is unchanged, so that
// an older checkpoint can be tried.
func (r *run) restore(f *checkpoint.File) error {
	if err := (&provenance.Record{Run: r.identity}).CheckOwner(r.dir, f.Step, f.Meta); err != nil {
		return err
	}
	var done provenance.Progress
	var build engine.BuildInfo
	err := errors.Join(
		f.Meta.Get(provenance.ProgressKey, &done), f.Meta.Get(provenance.BuildKey, &build))
	if err != nil {
		return err
	}
	state, err := r.upload(f)
	if err != nil {
		return fmt.Errorf("checkpoint of step %d: %w", f.Step, err)
	}
	var failures map[string]int
	var pending []refresh.Record
	err = errors.Join(f.Meta.GetIf(failuresKey, &failures), f.Meta.GetIf(refreshesKey, &pending),
		f.Meta.GetIf(unsearchedKey, &state.Unsearched))
	if err == nil {
		state.Pending.Failures = failures
		err = r.Compiled.RestoreRefreshes(state, pending, provenance.Tensors(f))
	}
	if err == nil {
		err = r.restoreMovement(f)
	}
	if err != nil {
		state.Close()
		return fmt.Errorf("checkpoint of step %d: %w", f.Step, err)
	}
	if now := r.Device.BuildInfo(); build != now {
		r.log.Warn("the checkpoint was written by another build: "+
			"results may not be bitwise equal to those of an uninterrupted run",
			"checkpoint", build.String(), "now", now.String())
	}
	r.state, r.done, r.saving.step = state, done, f.Step
	return nil
}

// unsearchedKey is the checkpoint metadata entry that is set if the quantizer searches due after
// its step have not run yet, and is absent otherwise.
const unsearchedKey = "unsearched"

// refreshesKey is the checkpoint metadata entry that lists the refreshes whose results have not
// taken effect yet. It is absent if there are none.
const refreshesKey = "refreshes"

const failuresKey = "refresh_failures"

var errData = errors.New("nothing was saved")

func damagedData(err error) error {
	return fmt.Errorf("%w; %w: repair the file and start the run again, or resume it", err, errData)
}

const verificationReminder = 2 * time.Second

// awaitData waits until the data of the run is verified, and records that in the provenance.
func (r *run) awaitData() error {
	if r.verification == nil || r.verified != nil {
		return nil
	}
	slow := time.AfterFunc(verificationReminder, func() {
		r.log.Info("the checkpoint will be saved once the token files are verified")
	})
	defer slow.Stop()
	if err := r.verification.Wait(); err != nil {
		return damagedData(err)
	}
	r.verified = provenance.Describe(r.data.Train, r.data.Validation)
	err := r.writeProvenance()
	if err != nil {
		r.verified = nil // retry with the next checkpoint
	}
	return err
}

// upload makes a state from a checkpoint. The weights of a run with adapters are those of the
// initial model, and are in no checkpoint.
func (r *run) upload(f *checkpoint.File) (*step.State, error) {
	load := provenance.Tensors(f)
	if r.cfg.Adapters.Rank == 0 {
		return r.Compiled.Upload(load)
	}
	found, err := r.findInitial()
	if err != nil {
		return nil, err
	}
	state, _, err := r.readInitial(found, func(base step.LoadFunc) (*step.State, error) {
		return r.Compiled.Upload(provenance.Overlaid(base, r.model, load, f.Has))
	})
	return state, err
}

func (r *run) divided() bool {
	return r.opts.Processes != nil && r.state.Consistent() && r.state.Elsewhere()
}

func (r *run) ownTensors() (list []safetensors.Tensor) {
	rank, shares := 0, make([]int, 1) // elements per process, of undivided tensors
	if r.divided() {
		rank, shares = r.opts.Processes.Rank(), make([]int, r.opts.Processes.Size())
	}
	for _, t := range r.Compiled.Stored(r.state) {
		to := rank
		if !t.Rows { // the process with the fewest elements so far
			to = slices.Index(shares, slices.Min(shares))
			size := 1
			for _, n := range t.Dims {
				size *= n
			}
			shares[to] += size
		}
		if to == rank {
			list = append(list, checkpoint.Tensor(t.Name, t.Dims, t.Storage, t.Read))
		}
	}
	return list
}
