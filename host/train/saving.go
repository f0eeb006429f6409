package train

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/compute/refresh"
	"github.com/cage-qat/cage/host/train/checkpoint"
	"github.com/cage-qat/cage/host/train/provenance"
)

const maxWait = 1024

type saving struct {
	step     int       // of the newest, -1 for none
	at       time.Time // of the newest, or of the first step
	retry    int       // step at which one that could not be saved is tried again, 0 for none
	wait     int       // steps between the last two tries
	underway *save     // the one that is being written, nil for none
}

type save struct {
	step int
	done chan struct{} // closed when err is known
	err  error
}

func (r *run) saveDue() bool {
	t, c := r.done.Step, r.cfg.Train
	if r.saveAsked.Swap(false) {
		return true
	}
	if c.CheckpointEvery > 0 && t%c.CheckpointEvery == 0 {
		return true
	}
	if r.saving.retry > 0 {
		return t >= r.saving.retry
	}
	return c.CheckpointMinutes > 0 && time.Since(r.saving.at).Minutes() >= c.CheckpointMinutes
}

// saveIfDue begins to save the checkpoint that follows the step just done, and looks what
// became of the one before. One that cannot be saved is tried again some steps later, while
// the run goes on.
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
		return nil // they wait, and are in the checkpoint
	}
	return recorded
}

func (r *run) saveFailed(step int, err error) {
	if isLost(err) {
		return
	}
	if r.follows() { // the first process decides when it is tried again
		r.log.Warn("this process could not write its part of the checkpoint: training goes on", "step", step, "error", err)
		return
	}
	s := &r.saving
	s.wait = min(max(1, 2*s.wait), maxWait) // twice as many steps until the next try
	s.retry = step + s.wait
	r.log.Warn("the checkpoint could not be saved: training goes on", "step", step, "next_try_after_step", r.saving.retry, "error", err)
}

// collect notes what became of the checkpoint that is being written, if it is done or wait
// says that it is to be.
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

// awaitSave waits for the checkpoint that is being written, if there is one, and returns
// why it could not be saved.
func (r *run) awaitSave() error {
	s := r.saving.underway
	if s == nil {
		return nil
	}
	<-s.done
	r.saving.underway = nil
	if s.err == nil && !r.follows() {
		r.saving = saving{step: s.step, at: time.Now()}
	}
	return s.err
}

func mustNotSave(err error) bool { return errors.Is(err, ErrReplaced) || errors.Is(err, errData) }

func (r *run) saveLast(err error) error {
	r.collect(true)
	if mustNotSave(err) {
		return err
	}
	if alone := err != nil && !errors.Is(err, ErrInterrupted) && !errors.Is(err, ErrNotFinite); alone && r.divided() {
		return r.lostHint(fmt.Errorf("%w\nOther processes have parts of the state, which cannot be saved without them; the newest checkpoint is %s", err, r.newest()))
	}
	if r.follows() {
		if failed := r.save(false); isLost(failed) {
			err = failed
		}
		return r.ending(err)
	}
	if !r.state.Consistent() || !r.Has(r.done.Step) { // a first step with other quantizers has their state already
		return r.lostHint(fmt.Errorf("%w\nThis step failed half-way, so that its state cannot be saved; the newest checkpoint is %s", err, r.newest()))
	}
	saveErr := r.save(true)
	interrupted := errors.Is(err, ErrInterrupted)
	if saveErr != nil && interrupted {
		err = nil // it would say that the run can go on, which the failed save makes doubtful
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

func (r *run) resumable(err error) error {
	return fmt.Errorf("%w\nThe state after step %d is saved: --resume goes on from there", err, r.saving.step)
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

// save writes a checkpoint of the present step. An interruption waits until it is done. An
// error is that of the checkpoint, unless it is saved: then it is that of the records.
func (r *run) save(due bool) error {
	recorded, err := r.beginSave(due)
	if err := r.awaitSave(); err != nil {
		return err
	}
	return errors.Join(recorded, err)
}

// beginSave begins to write a checkpoint of the present step if it is due, unless there is one,
// and to prune the old ones. The records reach the disk first, so that a checkpoint never knows
// more than they do; where they cannot, it is saved all the same, and the error recorded is
// theirs. The tensors are read while the next step computes its gradients, which waits before it
// replaces them. Where other processes have rows of the state, the first says in due for all
// whether it is saved, and each process writes what it has.
func (r *run) beginSave(due bool) (recorded, err error) {
	if due { // not before the checkpoint before this one is written, and the data is verified
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
	r.collect(true) // one at a time, also in those that follow
	state := checkpoint.State{Step: r.done.Step}
	if r.follows() {
		state.Tensors = r.ownTensors()
	} else {
		recorded = r.syncRecords()
		state, err = r.snapshot()
	}
	s := &save{step: state.Step, done: make(chan struct{}), err: err}
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
		if !r.follows() && (s.err == nil || divided && !isLost(s.err)) { // parts of a checkpoint that could not be saved go, too
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

// snapshot is the present state as a checkpoint holds it. Its tensors are read when they
// are written.
func (r *run) snapshot() (checkpoint.State, error) {
	meta, err := provenance.Metadata(r.identity, r.done, r.Device.BuildInfo())
	state := checkpoint.State{Step: r.done.Step, Tensors: r.ownTensors(), Meta: meta}
	return state, errors.Join(
		err,
		state.Meta.Set("total_steps", r.cfg.Train.Steps),
		state.Meta.Set("seed", r.cfg.Seed),
		setIf(&state, missingKey, r.records.missing(), len(r.records.missing()) > 0),
		setIf(&state, latestKey, r.display.latest, r.display.latest.Step == state.Step && !r.logs(state.Step)),
		setIf(&state, refreshesKey, r.state.Pending.Records(), len(r.state.Pending.Records()) > 0),
		setIf(&state, failuresKey, r.state.Pending.Failures(), len(r.state.Pending.Failures()) > 0),
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

// restore goes on from a checkpoint of this run. When that fails the run is as it was
// before, so that an older checkpoint can be tried.
func (r *run) restore(f *checkpoint.File) error {
	if err := (&provenance.Record{Run: r.identity}).CheckOwner(r.dir, f.Step, f.Meta); err != nil {
		return err
	}
	var done provenance.Progress
	var build engine.BuildInfo
	if err := errors.Join(f.Meta.Get(provenance.ProgressKey, &done), f.Meta.Get(provenance.BuildKey, &build)); err != nil {
		return err
	}
	if r.Choose(max(1, f.Step)) {
		if err := r.prepareMovement(); err != nil {
			return err
		}
	}
	state, err := r.Compiled.Upload(provenance.Tensors(f))
	if err != nil {
		return fmt.Errorf("checkpoint of step %d: %w", f.Step, err)
	}
	var failures map[string]int
	var pending []refresh.Record
	err = errors.Join(f.Meta.GetIf(failuresKey, &failures), f.Meta.GetIf(refreshesKey, &pending), f.Meta.GetIf(unsearchedKey, &state.Unsearched))
	if err == nil {
		state.Pending.RestoreFailures(failures)
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
		r.log.Warn("the checkpoint was written by another build: the bits of this run may differ from an uninterrupted one",
			"checkpoint", build.String(), "now", now.String())
	}
	r.state, r.done, r.saving.step = state, done, f.Step
	return nil
}

// unsearchedKey is the entry of a checkpoint's metadata that says that searches of quantizers which
// follow its step are not made yet. There is none otherwise.
const unsearchedKey = "unsearched"

// refreshesKey is the entry of a checkpoint's metadata about refreshes whose results
// are not in place yet. There is none where there are no such refreshes.
const refreshesKey = "refreshes"

const failuresKey = "refresh_failures"

var errData = errors.New("nothing was saved")

func damagedData(err error) error {
	return fmt.Errorf("%w; %w: put the file in order and begin the run again, or resume it", err, errData)
}

const patience = 2 * time.Second

// awaitData returns when the data of the run is known to be intact and the provenance
// says so.
func (r *run) awaitData() error {
	if r.verification == nil || r.verified != nil {
		return nil
	}
	slow := time.AfterFunc(patience, func() { r.log.Info("waiting until the token files are verified: nothing is saved before") })
	defer slow.Stop()
	if err := r.verification.Wait(); err != nil {
		return damagedData(err)
	}
	r.verified = provenance.Describe(r.data.Train, r.data.Validation)
	err := r.writeProvenance()
	if err != nil {
		r.verified = nil // so that it is written with the next checkpoint
	}
	return err
}
