package train

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/data/tokenizer"
	"github.com/cage-qat/cage/host/model/huggingface"
	"github.com/cage-qat/cage/host/train/build"
	"github.com/cage-qat/cage/host/train/checkpoint"
	"github.com/cage-qat/cage/host/train/config"
	"github.com/cage-qat/cage/host/train/provenance"
	"github.com/cage-qat/cage/host/train/rundir"
	"github.com/cage-qat/cage/host/train/step"
	"github.com/cage-qat/cage/internal/atomicfile"
	"github.com/cage-qat/cage/internal/vfs"
)

// changeable lists the keys that may change when a run is resumed. They do not influence the
// parameters, except that the GPU count and sharding change the order of sums.
var changeable = append([]string{
	"train.eval_every", "train.trajectory_every", "train.eval_batches", "train.final_eval_batches",
	"train.log_every", "train.nan_policy", "train.max_skipped", "train.memory_check",
	"train.samples", "train.sample_tokens", "train.sample_temperature",
	"method.pareto_every", "diagnostics.every", "diagnostics.coordinates", "diagnostics.window",
	"diagnostics.seed", "diagnostics.tensors", "train.distillation.teacher", "device.count",
	"device.shard", "data.train", "data.validation", "data.validation_sha256", "data.tokenizer",
}, config.Incidental()...)

// Other processes hold the lock briefly to test whether a run is training.
const (
	lockTimeout = time.Second
	lockRetry   = 10 * time.Millisecond
)

// open locks the run directory, so that no other process trains in it, and begins or resumes the
// run. The operating system releases the lock when the process ends.
func (r *run) open(ctx context.Context) error {
	if err := r.dir.MkdirAll(); err != nil {
		return r.cfg.ErrorAt("train.out", "%w", err)
	}
	lockCtx, cancel := context.WithTimeout(context.Background(), lockTimeout)
	defer cancel()
	var err error
	r.lock, err = r.dir.Lock().AwaitLock(lockCtx, lockRetry)
	if errors.Is(err, context.DeadlineExceeded) {
		return r.cfg.ErrorAt("train.out", "another process is training in %s", r.cfg.Train.Out).
			WithHint("wait for it, or give another train.out")
	}
	if err != nil {
		return r.cfg.ErrorAt("train.out", "lock the run directory: %w", err)
	}
	if err := r.dir.Checkpoints().CheckLinks(); err != nil { // before the first save would fail
		return r.cfg.ErrorAt("train.out", "%w", err)
	}
	warn := func(path vfs.Path, err error) {
		if errors.Is(err, checkpoint.ErrNotFinite) {
			r.log.Warn("a checkpoint with NaN or infinite values was skipped and renamed", "path", path)
			return
		}
		r.log.Warn("a damaged checkpoint was skipped and renamed", "path", path, "error", err)
	}
	r.checkpoints = checkpoint.NewKeeper(r.dir.Checkpoints(), r.cfg.Train.Keep, warn)
	if err := r.dir.RemoveAbandoned(); err != nil {
		r.log.Warn("unfinished files of a killed process could not be removed", "error", err)
	}
	previous, err := r.previousConfig()
	damage, damaged := errors.AsType[*provenance.DescriptionError](err)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return r.begin(ctx)
	case err != nil && !damaged:
		return err
	case !r.opts.Resume:
		return r.cfg.ErrorAt("train.out", "%s already contains a run", r.cfg.Train.Out).
			WithHint("give --resume to continue it, or another train.out")
	case !damaged:
		difference := r.sameRun(previous)
		if damage, damaged = errors.AsType[*provenance.DescriptionError](difference); damaged {
			break
		}
		if difference != nil {
			return difference
		}
		return r.resume(ctx, previous)
	}
	// It was stopped during its setup. Without a checkpoint, nothing can be lost.
	entries, err := checkpoint.List(r.dir.Checkpoints())
	if err != nil || len(entries) > 0 {
		return errors.Join(damage, err)
	}
	r.log.Warn("the run was stopped during its setup, before its first checkpoint: it starts again",
		"found", damage)
	return r.resume(ctx, r.cfg)
}

// previousConfig returns the configuration of the run that is in the directory, or
// [fs.ErrNotExist].
func (r *run) previousConfig() (*config.Config, error) {
	const unreadable = "the run directory's own configuration cannot be read: %w"
	path := r.dir.Config()
	text, err := path.ReadFile()
	if err != nil {
		return nil, fmt.Errorf(unreadable, err)
	}
	cfg, err := config.Parse(path.Name, text, nil)
	if err != nil {
		return nil, &provenance.DescriptionError{Err: fmt.Errorf(unreadable, err)}
	}
	return cfg, nil
}

// sameRun fails if the configuration differs from that of the run in a way that would change its
// parameters. For plugins, it compares the programs instead of the executables.
func (r *run) sameRun(previous *config.Config) error {
	var list []string
	for _, d := range config.Diff(previous, r.cfg) {
		// Files may be moved: their hashes are compared instead, as for data.train.
		moved := strings.HasPrefix(d.Key, "data.mixture[") && strings.HasSuffix(d.Key, "].path")
		if !moved && !slices.Contains(changeable, d.Key) && !strings.HasSuffix(d.Key, ".sha256") &&
			!(r.extends(previous) && slices.Contains(extendableKeys, d.Key)) {
			before, now := cmp.Or(d.A, "not set"), cmp.Or(d.B, "not set")
			list = append(list, fmt.Sprintf("  %s was %s, is %s", d.Key, before, now))
		}
	}
	if len(list) > 0 {
		return fmt.Errorf("%s: cannot resume with another configuration:\n%s%s",
			r.dir.Config(), strings.Join(list, "\n"), r.instead("\n"))
	}
	made, err := provenance.Read(r.dir)
	if err != nil {
		return err
	}
	if r.data != nil && made.SourceFiles != nil &&
		!slices.Equal(made.SourceFiles, r.data.SourceFiles()) {
		return r.cfg.ErrorAt("data.mixture", "cannot resume: the sources have %v files, and had %v",
			r.data.SourceFiles(), made.SourceFiles)
	}
	r.identity, r.initial, r.teacher = made.Run, made.Initial, made.Teacher
	programs, err := r.programsFor(previous)
	if err != nil {
		return err
	}
	if changed := build.Differing(made.Programs, programs.Hashes()); len(changed) > 0 {
		return fmt.Errorf("%s: cannot resume: a plugin has changed and now gives another program for %s "+
			"(%d programs in all)", r.cfg.Train.Out, changed[0], len(changed))
	}
	if made.Declared != "" && made.Declared != programs.Declared() {
		return fmt.Errorf("%s: cannot resume: a plugin has changed and now declares other states, "+
			"refreshes, probes, searches or codes", r.cfg.Train.Out)
	}
	return nil
}

// instead returns a hint on what to do if a run cannot be resumed as requested, after separator.
func (r *run) instead(separator string) string {
	if !r.cfg.Model.Language() {
		return ""
	}
	if entries, err := checkpoint.List(r.dir.Checkpoints()); err == nil && len(entries) == 0 {
		return fmt.Sprintf("%sthe run has no checkpoint yet: to begin again, remove %s, or give "+
			"another train.out", separator, r.cfg.Train.Out)
	}
	return fmt.Sprintf("%sto start another run from its weights, with a new optimizer state, set "+
		"model.init = %q, and another train.out", separator, r.cfg.Train.Out)
}

// newState returns the state before the first step, with weights drawn at random or loaded from
// another model. The first batch calibrates quantizers with trained parameters.
func (r *run) newState(ctx context.Context) (*step.State, error) {
	tokens := make([]int32, r.batches.Len)
	if err := r.batches.At(0, tokens); err != nil {
		return nil, err
	}
	if r.cfg.Init != "" {
		return r.startFrom(ctx, tokens)
	}
	return r.Compiled.NewState(ctx, uint64(r.cfg.Seed), tokens)
}

// begin begins a run, and fails if the directory has files of another run, which would be mixed
// with those of the new one.
func (r *run) begin(ctx context.Context) error {
	fail := func(what string) error {
		return r.cfg.ErrorAt("train.out", "%s has %s, but no %s", r.dir, what, rundir.ConfigFile).
			WithHint("move them away, or give another train.out")
	}
	entries, err := checkpoint.List(r.dir.Checkpoints())
	if err != nil {
		return err
	}
	if len(entries) > 0 {
		return fail(fmt.Sprintf("checkpoints of steps %v", checkpoint.Steps(entries)))
	}
	outputs := []vfs.Path{r.dir.Metrics(), r.dir.Trajectory(), r.dir.Samples(), r.dir.Summary()}
	for _, path := range outputs {
		there, err := path.Exists()
		if err != nil {
			return err
		}
		if there {
			return fail("the " + path.Base() + " of another run")
		}
	}
	// The process may have been killed after it wrote some of the files that describe this run.
	p, err := provenance.Read(r.dir)
	_, damaged := errors.AsType[*provenance.DescriptionError](err)
	if damaged && !errors.Is(err, fs.ErrNotExist) || err == nil && p.Programs == nil {
		return fail("a " + r.dir.Provenance().Base() + " that does not describe a run")
	}
	kept, err := r.dir.Tokenizer().ReadFile()
	if err == nil && r.data != nil && r.data.Train.Tokenizer().Check(kept) != nil {
		return fail("a " + r.dir.Tokenizer().Base() + " that is not the one of its data")
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return r.resume(ctx, r.cfg)
}

// resume loads the newest intact checkpoint with finite values, or the newest intact one if none is
// finite, and truncates the records to its step. A run without a checkpoint, because it is new or
// was stopped before its first one, begins with a new state.
func (r *run) resume(ctx context.Context, previous *config.Config) error {
	r.saving.step = -1
	var meta checkpoint.Meta
	finite := true
	err := r.checkpoints.Latest(func(f *checkpoint.File) (err error) {
		meta = f.Meta
		if finite, err = f.Finite(); err != nil {
			return err
		}
		// The other processes read the checkpoint at the same time. If it is damaged, they get an
		// older step next, or learn that this process has failed.
		if _, err := r.broadcast(startStep, f.Step); err != nil {
			return err
		}
		err = r.restore(f)
		if _, lost := r.broadcast(startRead, int(engine.Vote(err == nil))); lost != nil {
			return lost
		}
		return err
	})
	switch {
	case errors.Is(err, checkpoint.ErrNone):
		if _, err = r.broadcast(startStep, newRun); err == nil {
			r.state, err = r.newState(ctx)
		}
		if err != nil {
			return err
		}
	case err != nil:
		return err
	default:
		r.log.Info("resuming", "step", r.done.Step)
		if !finite {
			r.log.Warn("no checkpoint has finite values: the run will fail again unless its plugins or the "+
				"build have changed", "step", r.done.Step)
		}
	}
	if err := r.loadTeacher(); err != nil {
		return err
	}
	if r.identity == "" { // the run is new, or its provenance was damaged before the first checkpoint
		r.identity = provenance.NewIdentity()
	}
	if err := r.checkExtension(previous); err != nil {
		return err
	}
	if err := r.reopen(); err != nil {
		return err
	}
	if err := r.describe(); err != nil {
		return err
	}
	if err := r.resumeRecords(meta); err != nil {
		return err
	}
	if err := r.openTrajectory(); err != nil {
		return err
	}
	r.prune() // the run may have been killed between saving a checkpoint and pruning
	if err := r.restoreRecords(meta); err != nil {
		return err
	}
	if meta != nil {
		if _, err := r.broadcast(startEvaluate, r.evaluated); err != nil {
			return err
		}
	}
	return r.openSamples()
}

// ErrReplaced is wrapped by the error of a run whose directory was removed or replaced.
var ErrReplaced = errors.New("the run directory was removed or replaced")

func (r *run) checkDirectory() error {
	dir := r.cfg.Train.Out
	held, err := r.lock.Stat()
	if err != nil {
		return fmt.Errorf("lock of %s: %w", dir, err)
	}
	found, err := r.dir.Lock().Stat()
	if err == nil && vfs.SameFile(held, found) {
		return nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("lock of %s: %w", dir, err)
	}
	return fmt.Errorf("%s: %w during training; nothing more is written to it",
		dir, ErrReplaced)
}

// describe writes the run's description before its first step. run.toml is written last, so its
// existence shows that the description is complete.
func (r *run) describe() error {
	if err := errors.Join(r.keepTokenizer(), r.keepDescription()); err != nil {
		return err
	}
	if err := r.writeProvenance(); err != nil {
		return err
	}
	return atomicfile.WriteBytes(r.dir.Config(), r.cfg.Encode())
}

func (r *run) writeProvenance() error {
	p := &provenance.Record{
		Run: r.identity, Build: r.Device.BuildInfo(), Initial: r.initial, Teacher: r.teacher,
		Data: r.verified, Plugins: r.Programs.Used, Programs: r.Programs.Hashes(),
		Declared: r.Programs.Declared()}
	if r.data != nil {
		info := r.data.Train.Tokenizer()
		p.Tokenizer, p.SourceFiles = &info, r.data.SourceFiles()
	}
	return p.Write(r.dir)
}

func (r *run) keepTokenizer() error {
	if r.data == nil {
		return nil
	}
	info := r.data.Train.Tokenizer()
	kept, err := r.dir.Tokenizer().ReadFile()
	switch {
	case err == nil && info.Check(kept) == nil:
		return nil // the run is resumed
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return err
	}
	content, err := r.data.Definition(r.cfg)
	if companionErr := r.keepCompanions(content != nil); companionErr != nil {
		return companionErr
	}
	switch {
	case err != nil && r.cfg.Data.Tokenizer == "":
		r.log.Warn("without a copy of the tokenizer, the run cannot generate text",
			"error", err)
		return nil
	case err != nil || content == nil:
		return err
	}
	return atomicfile.WriteBytes(r.dir.Tokenizer(), content)
}

// keepCompanions copies the files published with the tokenizer: the names of special tokens, and
// chat templates. If the model in model.init has the same tokenizer, its files take precedence,
// except for the chat template of a run that trains on conversations.
func (r *run) keepCompanions(defined bool) error {
	chats := r.cfg.Data.Kind == config.KindChat
	if !defined && !chats {
		return nil
	}
	folder := filepath.Dir(r.data.Train.Path())
	if path := r.cfg.Data.Tokenizer; path != "" && !chats {
		folder = filepath.Dir(path)
	}
	data, published := vfs.At(folder), vfs.At(r.startedFrom)
	names := slices.Clone(tokenizer.CompanionFiles)
	same := false
	if r.startedFrom != "" {
		names = slices.DeleteFunc(names, func(name string) bool {
			return name == tokenizer.GenerationFile // keepDescription writes it
		})
		definition, err := published.Join(tokenizer.DefinitionFile).ReadFile()
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		same = err == nil && r.data.Train.Tokenizer().Check(definition) == nil
	}
	files := map[string][]byte{}
	var err error
	if same && !chats {
		err = rundir.ReadFiles(files, published, names)
	}
	err = errors.Join(err, rundir.ReadFiles(files, data, names))
	if same && chats { // the further chat templates that come with the main one
		err = errors.Join(err, rundir.ReadFiles(files, published, []string{tokenizer.TemplateFile}))
	}
	if err != nil {
		return err
	}
	return rundir.WriteFiles(r.dir, files)
}

// keepDescription writes the Hub description of the checkpoint that model.init names or derives
// from, updated for this run.
func (r *run) keepDescription() error {
	if r.startedFrom == "" {
		return nil
	}
	d, err := rundir.ReadDescription(r.startedFrom)
	if err != nil || d.Config == nil {
		return err
	}
	files := map[string][]byte{}
	if err := rundir.ReadFiles(files, r.dir.Path, tokenizer.CompanionFiles); err != nil {
		return err
	}
	var learned huggingface.Tokens
	if tok, err := r.openTokenizer(); err == nil { // otherwise keepTokenizer has warned
		learned = build.LearnedTokens(r.cfg, tok, r.opts.EndOfTurn(files, tok))
	}
	before := d.Config
	if d, err = d.For(r.cfg.Model, learned); err != nil {
		return r.cfg.ErrorAt("model.init", "%s: %w", r.startedFrom, err)
	}
	c, err := huggingface.ParseConfig(before, r.cfg.Model.Context)
	if err != nil {
		return err
	}
	if n := c.MaxPositions; r.cfg.Model.Context > n {
		r.log.Warn("the context is longer than that of the model in model.init: "+
			"exports write the context as max_position_embeddings",
			"context", r.cfg.Model.Context, "positions", n)
	}
	files = map[string][]byte{huggingface.ConfigName: d.Config}
	if d.Generation != nil {
		files[tokenizer.GenerationFile] = d.Generation
	}
	return rundir.WriteFiles(r.dir, files)
}
