package train

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/hashicorp/go-hclog"

	"github.com/cage-qat/cage/host/assembly"
	"github.com/cage-qat/cage/host/checkpoint"
	"github.com/cage-qat/cage/host/config"
	"github.com/cage-qat/cage/host/data"
	"github.com/cage-qat/cage/host/engine"
	"github.com/cage-qat/cage/host/generate"
	"github.com/cage-qat/cage/host/memory"
	"github.com/cage-qat/cage/host/plugin"
	"github.com/cage-qat/cage/host/rundir"
	"github.com/cage-qat/cage/host/safetensors"
	"github.com/cage-qat/cage/host/step"
	"github.com/cage-qat/cage/internal/vfs"
)

// OpenOptions say what to open of a run.
type OpenOptions struct {
	// Step is the checkpoint's step; 0 means the newest intact one.
	Step int
	// Batch is the number of sequences computed at once; 0 means the run's, on one of
	// its replicas.
	Batch int
	// Data is a token file to evaluate on; empty means the validation set.
	Data string
	// NoData opens no token file: the run can then generate, but not be evaluated.
	NoData bool
	Finder *plugin.Finder // nil means plugin.NewFinder()
	Logger hclog.Logger   // nil discards messages
}

// Trained is a checkpoint of a run, ready for evaluation with the run's quantizers.
type Trained struct {
	dir     string
	cfg     *config.Config
	step    int
	made    *provenance
	search  rundir.Search // for what is outside of the run directory
	data    *data.File    // to evaluate on; nil for a problem without data
	device  *engine.Device
	kernels *step.Kernels
	state   *step.State
}

// Open loads a checkpoint of the run in dir. A quantizer that now gives other
// programs than in training is reported as a warning.
func Open(ctx context.Context, dir string, o OpenOptions) (*Trained, error) {
	cfg, err := config.Load(rundir.At(dir).Config().Name, nil)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s is not a run directory: it has no %s", dir, rundir.ConfigFile)
	}
	if err != nil {
		return nil, err
	}
	if o.Logger == nil {
		o.Logger = hclog.NewNullLogger()
	}
	saved, err := loadCheckpoint(dir, o)
	if err != nil {
		return nil, err
	}
	made, err := readProvenance(rundir.At(dir))
	if err != nil {
		return nil, err
	}
	if err := made.checkOwner(rundir.At(dir), saved.Step, saved.Meta); err != nil {
		return nil, err
	}
	t := &Trained{dir: dir, cfg: cfg, step: saved.Step, made: made, search: rundir.Search{Run: dir, Made: made.Directory}}
	if err := t.open(ctx, o, saved); err != nil {
		t.Close()
		return nil, err
	}
	return t, nil
}

func loadCheckpoint(dir string, o OpenOptions) (checkpoint.State, error) {
	if o.Step > 0 {
		entries, err := checkpoint.List(rundir.At(dir).Checkpoints())
		if err != nil {
			return checkpoint.State{}, err
		}
		var steps []int
		for _, e := range entries {
			if e.Step == o.Step {
				return checkpoint.Load(e.Path)
			}
			steps = append(steps, e.Step)
		}
		return checkpoint.State{}, fmt.Errorf("%s has no checkpoint of step %d: there are %v", dir, o.Step, steps)
	}
	passed := false
	s, err := checkpoint.Latest(rundir.At(dir).Checkpoints(), func(path vfs.Path, err error) {
		passed = true
		o.Logger.Warn("passing over a damaged checkpoint", "path", path, "error", err)
	})
	if err != nil {
		return s, fmt.Errorf("%s: %w", dir, err)
	}
	if passed {
		o.Logger.Warn("using an older checkpoint", "step", s.Step)
	}
	return s, nil
}

func (t *Trained) open(ctx context.Context, o OpenOptions, saved checkpoint.State) error {
	var err error
	if o.Finder == nil {
		if o.Finder, err = plugin.NewFinder(); err != nil {
			return err
		}
		o.Finder.Notify = plugin.Inform(o.Logger)
	}
	// One replica computes what each did in training.
	t.cfg.Train.Batch, t.cfg.Device.Count = assembly.ReplicaBatch(t.cfg), min(1, t.cfg.Device.Count)
	if o.Batch > 0 {
		t.cfg.Train.Batch = o.Batch
	}
	if err := t.openData(o); err != nil {
		return err
	}
	if err := findPlugins(t.cfg, t.cfg.Quantizer.Plugins(), t.search, o.Finder); err != nil {
		return err
	}
	m, err := assembly.Model(t.cfg)
	if err != nil {
		return err
	}
	// What counts is that the programs are those of the run, not the executables.
	for _, p := range t.cfg.Quantizer.Plugins() {
		p.SHA256 = ""
	}
	programs, err := assembly.Collect(ctx, assembly.Request{
		Config: t.cfg, Model: m, Batch: t.cfg.Train.Batch, Forward: true, Finder: o.Finder, Options: plugin.Options{Logger: o.Logger},
	})
	if err != nil {
		return err
	}
	t.comparePrograms(o, programs)
	if err := assembly.CheckMemoryForward(t.cfg, m, programs, bytesOf(saved)); err != nil {
		return fmt.Errorf("%w\nthe estimate may be off by %.0f %%; train.memory_check = \"off\" in %s tries it all the same", err, 100*memory.Accuracy, rundir.At(t.dir).Config())
	}
	if t.device, err = assembly.Device(t.cfg, o.Logger.Warn); err != nil {
		return err
	}
	plan, err := assembly.Plan(t.cfg, m, programs)
	if err != nil {
		return err
	}
	if t.kernels, err = step.Compile(t.device, plan); err != nil {
		return err
	}
	tensors := map[string]safetensors.Tensor{}
	for _, st := range saved.Tensors {
		tensors[st.Name] = st
	}
	t.state, err = t.kernels.UploadParams(loader(tensors))
	return err
}

// bytesOf is the size of the tensors of a checkpoint.
func bytesOf(s checkpoint.State) int64 {
	var sum int64
	for _, t := range s.Tensors {
		sum += int64(len(t.Data))
	}
	return sum
}

// Step is the number of optimizer steps behind the checkpoint.
func (t *Trained) Step() int { return t.step }

// Evaluate returns the mean loss over the first batches, or all when 0; see
// [Evaluate].
func (t *Trained) Evaluate(ctx context.Context, batches int) (loss float64, tokens int64, err error) {
	if t.data == nil && t.cfg.Model.Language() {
		return 0, 0, fmt.Errorf("%s was opened without data", t.dir)
	}
	if t.data == nil {
		return Evaluate(ctx, t.kernels, t.state, nil, batches)
	}
	verification := verifyFiles(t.data)
	defer verification.close()
	loss, tokens, err = Evaluate(ctx, t.kernels, t.state, t.data, batches)
	if err != nil {
		return 0, 0, err
	}
	return loss, tokens, verification.wait()
}

// Generate continues a prompt. The run must have been opened with a batch of 1.
func (t *Trained) Generate(ctx context.Context, prompt string, o generate.Options) (string, error) {
	if !t.cfg.Model.Language() {
		return "", fmt.Errorf("%s: a model of kind %q does not predict text", t.dir, t.cfg.Model.Kind)
	}
	if t.cfg.Train.Batch != 1 {
		return "", fmt.Errorf("generation needs a batch of 1, the run was opened with %d", t.cfg.Train.Batch)
	}
	tok, err := t.tokenizer()
	if err != nil {
		return "", err
	}
	ids, err := tok.Encode(prompt)
	if err != nil {
		return "", fmt.Errorf("prompt: %w", err)
	}
	info := tok.Info()
	if info.BOS >= 0 {
		ids = append([]int32{info.BOS}, ids...)
	}
	e, err := t.kernels.Evaluator(t.state)
	if err != nil {
		return "", err
	}
	defer e.Close()
	o.Vocab = info.VocabSize
	next, err := generate.Continue(ctx, e.Logits, t.cfg.Model.Context, ids, o)
	if err != nil {
		return "", err
	}
	return tok.Decode(next)
}

// Close frees everything.
func (t *Trained) Close() {
	if t.state != nil {
		t.state.Close()
	}
	if t.kernels != nil {
		t.kernels.Close()
	}
	if t.device != nil {
		t.device.Close()
	}
	if t.data != nil {
		t.data.Close()
	}
}
