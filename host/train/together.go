package train

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/cage-qat/cage/host/compute/device"
	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/train/build"
	"github.com/cage-qat/cage/host/train/checkpoint"
	"github.com/cage-qat/cage/host/train/config"
	"github.com/cage-qat/cage/host/train/provenance"
)

// Several processes, each with some of the GPUs, can train one model. Each of them reads the
// configuration and the data, starts the plugins, compiles, and runs every step on its part of the
// batch. The first process also writes the run directory; the others only read it.

// Processes connects the processes that train one model.
type Processes interface {
	engine.Processes
	// Leave ends this process's participation. With a nil error it waits until the other processes
	// are done; otherwise it makes them fail, too. Calls after the first do nothing.
	Leave(error)
}

// ErrStoppedElsewhere wraps [ErrInterrupted]. It is the error of a process that stops because
// another process of the same run was asked to.
var ErrStoppedElsewhere = fmt.Errorf("%w, because another process was asked to stop",
	ErrInterrupted)

func (r *run) follows() bool { return r.opts.Processes != nil && r.opts.Processes.Rank() > 0 }

// same fails if text differs between processes. name is what the error calls it.
func (r *run) same(name, text string) error {
	sum := sha256.Sum256([]byte(text))
	values, err := r.opts.Processes.Agree(name, int64(binary.LittleEndian.Uint64(sum[:])))
	if err != nil {
		return err
	}
	for rank, v := range values {
		if v != values[0] {
			return fmt.Errorf("processes 0 and %d do not have the same %s, as training one model "+
				"requires", rank, name)
		}
	}
	return nil
}

// sameConfiguration fails if the processes differ in their settings, data or options.
func (r *run) sameConfiguration() error {
	if r.opts.Processes == nil {
		return nil
	}
	return r.same("configuration (RUN.toml, overrides, data, --resume and --stop-after)",
		fmt.Sprintln(r.cfg.Fingerprint(), r.cfg.Train.Out, r.opts.Resume, r.opts.StopAfter))
}

// sameRuntime fails if the processes differ in plugins, recomputation or builds, or if a plugin
// would compute in a process of its own: its results would have to be sent to the other processes.
func (r *run) sameRuntime() error {
	if r.opts.Processes == nil {
		return nil
	}
	if r.Computing() {
		return errors.New("a plugin of this run computes in its own process (an opaque optimizer, or a " +
			"quantizer that searches): train such a run with one process, on the GPUs of one machine")
	}
	if r.cfg.Device.Shard != device.ShardNone && r.Compiled.Refreshes() {
		return r.cfg.ErrorAt("device.shard", "%q with several processes, and an optimizer that "+
			"refreshes preconditioners from whole states", r.cfg.Device.Shard).
			WithHint(`train with one process on the GPUs of one machine, or with device.shard = "none"`)
	}
	var list []string
	hashes := r.Programs.Hashes()
	for _, name := range slices.Sorted(maps.Keys(hashes)) {
		list = append(list, name+" "+hashes[name])
	}
	return errors.Join(r.same("programs of plugins", strings.Join(list, "\n")),
		r.same(`train.recompute ("auto" depends on the GPU's memory: set another value)`,
			string(r.Recompute)),
		r.same("build of cage and processor", r.Device.BuildInfo().String()))
}

// Values that the first process sends to the others when a run begins or is resumed.
const (
	startStep     = "checkpoint to resume from"
	startRead     = "whether that checkpoint is intact"
	startEvaluate = "step of the last evaluation"
)

const newRun = -1

func (r *run) broadcast(what string, value int) (int, error) {
	p := r.opts.Processes
	if p == nil {
		return value, nil
	}
	values, err := p.Agree(what, int64(value))
	if err != nil {
		return 0, err
	}
	return int(values[0]), nil
}

func (r *run) follow(ctx context.Context) error {
	at, err := r.broadcast(startStep, 0)
	if err != nil {
		return err
	}
	r.saving.step = -1
	if at == newRun {
		if r.state, err = r.newState(ctx); err != nil {
			return err
		}
		return r.loadTeacher()
	}
	if err := r.loadTeacher(); err != nil {
		return err
	}
	made, err := provenance.Read(r.dir)
	if err != nil {
		return fmt.Errorf("%w: all processes must be able to read the run directory", err)
	}
	r.identity = made.Run
	for {
		f, failed := checkpoint.Open(r.dir.Checkpoints().Join(checkpoint.FileName(at)))
		if failed != nil {
			failed = fmt.Errorf("%w: all processes must be able to read the run directory", failed)
		} else {
			failed = r.restore(f)
			f.Close()
		}
		intact, err := r.broadcast(startRead, 0)
		if err != nil {
			return err
		}
		if intact == 1 {
			if failed == nil {
				r.evaluated, failed = r.broadcast(startEvaluate, 0)
			}
			return failed
		}
		if failed == nil {
			r.state.Close()
			r.state = nil
		}
		if at, err = r.broadcast(startStep, 0); err != nil {
			return err
		}
	}
}

// stopVote is the vote of all processes, taken during a step, on whether to stop after it.
type stopVote struct {
	ctx    context.Context // ends when this process is asked to stop
	answer chan error      // see checkStop
}

// voteToStop starts the vote of all processes on whether to stop after step t.
func (r *run) voteToStop(t int) {
	if r.opts.Processes == nil {
		return
	}
	stop := engine.Vote(r.stopVote.ctx.Err() != nil)
	answer := make(chan error, 1)
	r.stopVote.answer = answer
	go func() {
		values, err := r.opts.Processes.Agree(fmt.Sprint("whether to stop after step ", t), stop)
		switch {
		case err != nil:
			err = &engine.LostError{Err: err}
		case slices.Contains(values, 1):
			err = ErrInterrupted
		}
		answer <- err
	}()
}

// checkStop returns ErrInterrupted if the processes have agreed to stop after the computed step.
func (r *run) checkStop(ctx context.Context) error {
	if ctx.Err() != nil {
		return ErrInterrupted
	}
	if r.stopVote.answer == nil {
		return nil
	}
	err := <-r.stopVote.answer
	r.stopVote.answer = nil
	if err == ErrInterrupted && r.stopVote.ctx.Err() == nil {
		err = ErrStoppedElsewhere
	}
	return err
}

// agreeToSave reports whether a checkpoint is saved after the current step: it is if due is true in
// the first process. mark is a random number in the names of the checkpoint's parts.
func (r *run) agreeToSave(due bool) (mark uint32, saves bool, err error) {
	wish := int64(0)
	if due {
		wish = 1 + int64(rand.Uint32())
	}
	values, err := r.opts.Processes.Agree(fmt.Sprint("whether to save after step ", r.done.Step), wish)
	if err != nil {
		return 0, false, &engine.LostError{Err: err}
	}
	return uint32(values[0] - 1), values[0] > 0, nil
}

// savePart writes the part of this process, unless failed is set, and waits until all processes
// have written theirs. It returns the file names of all parts.
func (r *run) savePart(state checkpoint.State, mark uint32, failed error) ([]string, error) {
	p := r.opts.Processes
	names := make([]string, p.Size())
	for rank := range names {
		names[rank] = checkpoint.PartName(state.Step, rank+1, p.Size(), mark)
	}
	if failed == nil {
		failed = checkpoint.SavePart(context.Background(), r.dir.Checkpoints(), names[p.Rank()],
			state.Tensors)
	}
	topic := fmt.Sprint("whether the parts of the checkpoint of step ", state.Step, " are written")
	votes, err := p.Agree(topic, engine.Vote(failed == nil))
	if err != nil {
		return nil, &engine.LostError{Err: err, Cause: failed}
	}
	if other := slices.Index(votes, 0); failed == nil && other >= 0 && !r.follows() {
		failed = fmt.Errorf("process %d could not write its part: see its log", other)
	}
	return names, failed
}

// awaitOthers waits until the other processes are done, which may need the device of this process.
// err is the result of this process.
func (r *run) awaitOthers(err error) error {
	if r.opts.Processes == nil || err != nil && !errors.Is(err, ErrInterrupted) {
		return err
	}
	if _, lost := r.opts.Processes.Agree("end", 0); lost != nil {
		return errors.Join(err, &engine.LostError{Err: lost})
	}
	return err
}

// peerFailureGrace is how long a failed process waits for the report that another process is lost,
// which may be the cause of its error.
const peerFailureGrace = time.Second

// leave reports to the others how this process ended, before it closes resources that they may
// need. It returns err or, if the loss of another process caused it, an error that says so. summary
// is set if the run has a summary.
func (r *run) leave(summary bool, err error) error {
	p := r.opts.Processes
	switch {
	case p == nil:
		return err
	case err == nil || summary && errors.Is(err, ErrInterrupted): // they have agreed to stop
		p.Leave(nil)
		return err
	}
	if !isLost(err) {
		select {
		case <-p.Gone():
			err = &engine.LostError{Err: p.Err(), Cause: err}
		case <-time.After(peerFailureGrace):
		}
	}
	p.Leave(err)
	return err
}

func isLost(err error) bool {
	_, lost := errors.AsType[*engine.LostError](err)
	return lost
}

func (r *run) ending(err error) error {
	if !isLost(err) {
		return err
	}
	return r.lostHint(fmt.Errorf("%w\nThe newest checkpoint is %s", err, r.newest()))
}

// lostHint adds to an error about a lost process how to resume the run.
func (r *run) lostHint(err error) error {
	if !isLost(err) || r.saving.step < 0 {
		return err
	}
	return fmt.Errorf("%w: --resume continues from there; if GPUs are missing, set device.count to "+
		"the number that is left", err)
}

// programsFor returns the programs that the plugins return for the GPU count that the run had
// before: some programs depend on the number of sequences per GPU.
func (r *run) programsFor(previous *config.Config) (*build.Programs, error) {
	if build.ReplicaBatch(previous) == build.ReplicaBatch(r.cfg) {
		return r.Programs, nil
	}
	r.log.Warn("the number of GPUs has changed: sums are computed in another order, and quantizers "+
		"with statistics over all tokens of a GPU see different tokens",
		"before", previous.Device.Count, "now", r.cfg.Device.Count)
	return build.Collect(context.Background(), r.request(previous))
}
