package train

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/hashicorp/go-hclog"

	"github.com/cage-qat/cage/host/assembly"
	"github.com/cage-qat/cage/host/checkpoint"
	"github.com/cage-qat/cage/host/config"
	"github.com/cage-qat/cage/host/engine"
	"github.com/cage-qat/cage/host/plugin"
	"github.com/cage-qat/cage/host/rundir"
	"github.com/cage-qat/cage/internal/atomicfile"
	"github.com/cage-qat/cage/internal/vfs"
)

// ReplayOptions say which part of a run is replayed, and how.
type ReplayOptions struct {
	// From is the step to begin with: that of a checkpoint that has a later one, or 0
	// for the beginning of the run. Nil means the last checkpoint but one, or 0 where
	// there is only one.
	From    *int
	Finder  *plugin.Finder // nil means plugin.NewFinder()
	Logger  hclog.Logger   // nil discards messages
	Console io.Writer      // receives the progress display; nil shows none
}

// Replayed is what came of the steps of a run that were done once more.
type Replayed struct {
	Run      string           `json:"run"`
	From     int              `json:"from"` // steps
	To       int              `json:"to"`
	Tensors  int              `json:"tensors"` // that were compared
	Numbers  int64            `json:"numbers"` // in them
	Recorded engine.BuildInfo `json:"recorded"`
	Now      engine.BuildInfo `json:"now"` // the build that replayed
	// Differences are empty when every bit is as it was.
	Differences []Difference `json:"differences"`
}

// Replay computes the steps between two checkpoints of the run in dir once more, with
// its own configuration, plugins and data, in a directory for the time being, and
// compares the state with the second one. The run is only read.
func Replay(ctx context.Context, dir string, o ReplayOptions) (*Replayed, error) {
	if o.Logger == nil {
		o.Logger = hclog.NewNullLogger()
	}
	run := rundir.At(dir)
	cfg, err := config.Load(run.Config().Name, nil)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s is not a run directory: it has no %s", dir, rundir.ConfigFile)
	}
	if err != nil {
		return nil, err
	}
	from, to, err := replayWindow(run, o)
	if err != nil {
		return nil, err
	}
	scratch, err := os.MkdirTemp("", "cage-verify-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(scratch)
	again := rundir.At(filepath.Join(scratch, filepath.Base(run.Name)))
	if err := prepareReplay(ctx, cfg, run, again, from, &o); err != nil {
		return nil, err
	}
	_, err = Run(ctx, cfg, Options{Resume: true, StopAfter: to.Step, Finder: o.Finder, Logger: o.Logger, Console: o.Console})
	if err != nil && (ctx.Err() != nil || !errors.Is(err, ErrInterrupted)) {
		return nil, fmt.Errorf("replay steps %d to %d: %w", from.Step, to.Step, err)
	}
	got, err := checkpoint.Load(again.Checkpoints().Join(checkpoint.FileName(to.Step)))
	if err != nil {
		return nil, err
	}
	out := &Replayed{Run: dir, From: from.Step, To: to.Step, Tensors: len(to.Tensors)}
	for _, t := range to.Tensors {
		out.Numbers += int64(len(t.Data) / t.DType.Size())
	}
	if out.Differences, err = compareStates(to, got); err != nil {
		return nil, err
	}
	return out, errors.Join(to.Meta.Get("build", &out.Recorded), got.Meta.Get("build", &out.Now))
}

// replayWindow loads the two checkpoints. The state before the first step has no tensors.
func replayWindow(run rundir.Dir, o ReplayOptions) (from, to checkpoint.State, err error) {
	entries, err := checkpoint.List(run.Checkpoints())
	if err != nil {
		return from, to, err
	}
	if len(entries) == 0 || entries[len(entries)-1].Step == 0 {
		return from, to, fmt.Errorf("%s has no checkpoint after its first step: there is nothing to compare a replay with", run)
	}
	if o.From != nil {
		entries, err = entriesFrom(run, entries, *o.From)
		if err != nil {
			return from, to, err
		}
	}
	if to, entries, err = newestIntact(entries, o.Logger); err != nil {
		return from, to, err
	}
	if len(entries) > 0 {
		from, _, err = newestIntact(entries, o.Logger)
	}
	if errors.Is(err, checkpoint.ErrDamaged) && o.From == nil {
		err = nil // from the beginning
	}
	if err == nil && o.From != nil && from.Step != *o.From {
		err = fmt.Errorf("%w: one of those that are needed to replay from step %d", checkpoint.ErrDamaged, *o.From)
	}
	if err == nil {
		err = errors.Join(CheckOwner(run, from.Step, from.Meta), CheckOwner(run, to.Step, to.Meta))
	}
	return from, to, err
}

// entriesFrom are the checkpoint of that step and the one after it; of step 0, which need
// not be saved, the one after it.
func entriesFrom(run rundir.Dir, entries []checkpoint.Entry, step int) ([]checkpoint.Entry, error) {
	var steps []int
	for _, e := range entries {
		steps = append(steps, e.Step)
	}
	at := slices.Index(steps, step)
	switch {
	case step == 0 && at < 0:
		return entries[:1], nil
	case at < 0 || at == len(entries)-1:
		return nil, fmt.Errorf("%s cannot be replayed from step %d: it has checkpoints of steps %v, of which one after it is needed, too (train.keep)", run, step, steps)
	}
	return entries[at : at+2], nil
}

// newestIntact loads the newest of the checkpoints that is intact, and returns those older.
func newestIntact(entries []checkpoint.Entry, log hclog.Logger) (checkpoint.State, []checkpoint.Entry, error) {
	for i, e := range slices.Backward(entries) {
		s, err := checkpoint.Load(e.Path)
		if err == nil {
			return s, entries[:i], nil
		}
		if !errors.Is(err, checkpoint.ErrDamaged) {
			return s, nil, err
		}
		log.Warn("passing over a damaged checkpoint", "path", e.Path, "error", err)
	}
	return checkpoint.State{}, nil, fmt.Errorf("%w: none that is needed is intact", checkpoint.ErrDamaged)
}

// prepareReplay makes a run directory that stands where the run stood at the first
// checkpoint, and lets the configuration lead there.
func prepareReplay(ctx context.Context, cfg *config.Config, run, again rundir.Dir, from checkpoint.State, o *ReplayOptions) error {
	made, err := readProvenance(run)
	if err != nil {
		return err
	}
	search := rundir.Search{Run: run.Name, Made: made.Directory}
	if err := findForReplay(cfg, search, o); err != nil {
		return err
	}
	t := &cfg.Train
	t.Out, t.EvalEvery, t.FinalEvalBatches, t.TrajectoryEvery = again.Name, 0, 1, 0
	t.CheckpointEvery, t.CheckpointMinutes, cfg.Method.ParetoEvery = 0, 0, 0
	text, err := cfg.Encode()
	if err != nil {
		return err
	}
	provenance, err := run.Provenance().ReadFile()
	if err != nil {
		return err
	}
	if err := again.MkdirAll(); err != nil {
		return err
	}
	err = errors.Join(atomicfile.WriteBytes(again.Config(), text), atomicfile.WriteBytes(again.Provenance(), provenance))
	if err == nil && from.Step > 0 {
		_, err = checkpoint.Save(ctx, again.Checkpoints(), from)
	}
	return err
}

// findForReplay lets the configuration name plugins and data where they are now.
func findForReplay(cfg *config.Config, search rundir.Search, o *ReplayOptions) error {
	if o.Finder == nil {
		var err error
		if o.Finder, err = plugin.NewFinder(); err != nil {
			return err
		}
		o.Finder.Notify = plugin.Inform(o.Logger)
	}
	plugins := append(cfg.Quantizer.Plugins(), cfg.Optimizer.Plugins()...)
	if err := findPlugins(cfg, plugins, search, o.Finder); err != nil {
		return err
	}
	for _, p := range plugins {
		p.SHA256 = "" // what counts is that the programs are those of the run
	}
	if !cfg.Model.Language() {
		return nil
	}
	train, err := assembly.FindTrain(cfg, search)
	if err != nil {
		return err
	}
	defer train.Close()
	validation, err := assembly.FindValidation(cfg, search)
	if err != nil {
		return err
	}
	defer validation.Close()
	cfg.Data.Train, cfg.Data.Validation = train.Path(), validation.Path()
	if there, err := (vfs.At(search.Run).Join(rundir.TokenizerFile)).Exists(); err == nil && there {
		cfg.Data.Tokenizer = search.Run
	}
	return nil
}
