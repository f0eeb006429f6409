// Package trained opens trained models for use: a checkpoint of a run, with the run's own
// quantizers or with other ones, or an unchanged Hugging Face checkpoint. [Open] finds the plugins,
// data and tokenizer of a run even if they have moved. The [Model] then evaluates texts, scores
// continuations, generates, answers tasks and RULER prompts, and provides the data for package
// export. [Import] converts a Hugging Face checkpoint to a run directory. See host/train for
// training and host/deploy/quantize for quantization after training.
package trained

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/hashicorp/go-hclog"

	"github.com/cage-qat/cage/host/data/dataset"
	"github.com/cage-qat/cage/host/data/tokenizer"
	"github.com/cage-qat/cage/host/model/huggingface"
	"github.com/cage-qat/cage/host/train/build"
	"github.com/cage-qat/cage/host/train/checkpoint"
	"github.com/cage-qat/cage/host/train/config"
	"github.com/cage-qat/cage/host/train/plugin"
	"github.com/cage-qat/cage/host/train/provenance"
	"github.com/cage-qat/cage/host/train/rundir"
	"github.com/cage-qat/cage/host/train/step"
	"github.com/cage-qat/cage/internal/digest"
	"github.com/cage-qat/cage/internal/vfs"
)

// Options are the options of [Open].
type Options struct {
	// Step is the step of the checkpoint; 0 means the newest one.
	Step int
	// Data is a token file or chat file to evaluate on; "" means the validation set.
	Data string
	// NoData opens no data: the model can then generate, but cannot be evaluated.
	NoData bool
	// Context is the sequence length, in tokens, for a Hugging Face checkpoint; see [Import]. That of
	// a run is fixed.
	Context int
	// Generate is the number of sequences that [Model.Begin] continues at once. If it is 0, the model
	// cannot generate, and evaluation uses the batch size that a replica had in the run.
	Generate int
	// Export opens the model for [Model.Export] only.
	Export bool
	// Score opens the model for [Model.Score].
	Score bool
	// Quantizer replaces the run's own quantizers; nil keeps them.
	Quantizer *Quantizer
	Finder    *plugin.Finder // nil means plugin.NewFinder()
	Logger    hclog.Logger   // nil discards messages
}

// Model is a checkpoint of a run, ready for evaluation with the run's quantizers.
type Model struct {
	dir      string
	log      hclog.Logger
	cfg      *config.Config
	step     int
	record   *Record
	hub      *huggingface.Checkpoint // nil if the model is of a run
	search   rundir.Search           // for files outside of the run directory
	data     *dataset.File           // data to evaluate on; nil for a problem without data
	state    *step.State
	replaced bool // whether the quantizers are not those of the training
	built    build.Runtime

	ends      []int32         // tokens that end a text; nil until needed
	sequences int             // number of sequences that are continued at once
	evaluator *step.Evaluator // for generation and scores; nil until needed
}

// Open loads a checkpoint of the run in dir, and logs a warning if the programs of a quantizer have
// changed since training. It also opens a Hugging Face checkpoint, unchanged.
func Open(ctx context.Context, dir string, o Options) (*Model, error) {
	var err error
	if o.Finder, o.Logger, err = plugin.Defaults(o.Finder, o.Logger); err != nil {
		return nil, err
	}
	if IsHub(dir) {
		return openFromHub(ctx, dir, o)
	}
	cfg, err := rundir.At(dir).LoadConfig()
	if err != nil {
		return nil, fmt.Errorf("%w%s", err, huggingface.Hint(dir))
	}
	if o.Context > 0 {
		return nil, fmt.Errorf("%s is a run, whose context is fixed (%d): leave the context out",
			dir, cfg.Model.Context)
	}
	if err := CheckSaved(dir, o.Step); err != nil {
		return nil, err
	}
	record, err := ReadRecord(rundir.At(dir))
	if err != nil {
		return nil, err
	}
	if o.Quantizer != nil && record.Posttrained != nil {
		return nil, fmt.Errorf("%s has already been quantized after training: evaluate the run that it "+
			"was made from with another quantizer", dir)
	}
	t := &Model{dir: dir, cfg: cfg, record: record, log: o.Logger}
	return t.open(ctx, o)
}

// CheckSaved returns an error unless the run has a checkpoint of the step, or any if step is 0.
func CheckSaved(dir string, step int) error {
	entries, err := checkpoint.List(rundir.At(dir).Checkpoints())
	if err != nil {
		return err
	}
	steps := checkpoint.Steps(entries)
	if step > 0 && !slices.Contains(steps, step) {
		return fmt.Errorf("%s has no checkpoint of step %d: the steps are %v", dir, step, steps)
	}
	if len(entries) == 0 {
		return fmt.Errorf("%s: %w in %s", dir, checkpoint.ErrNone, rundir.At(dir).Checkpoints())
	}
	return nil
}

func (t *Model) open(ctx context.Context, o Options) (*Model, error) {
	t.search = rundir.Search{Run: t.dir, WorkDir: t.record.Directory}
	t.replaced, t.sequences = o.Quantizer != nil, o.Generate
	if err := t.load(ctx, o); err != nil {
		t.Close()
		return nil, err
	}
	return t, nil
}

// load opens the data, compiles the model, and loads its tensors, without optimizer states.
func (t *Model) load(ctx context.Context, o Options) error {
	if o.Export { // an export uses the quantizers for a piece of a sequence
		o.Generate, o.NoData = 1, true
	}
	err := t.openData(o)
	if err != nil {
		return err
	}
	if t.step = o.Step; t.hub == nil { // the quantizers of a checkpoint may depend on its step
		if t.step, err = checkpoint.Chosen(rundir.At(t.dir).Checkpoints(), o.Step); err != nil {
			return err
		}
	}
	t.cfg, err = t.cfg.Changed(func(c *config.Config) error {
		// A single replica computes the batch that each replica computed in training.
		c.Train.Batch, c.Device.Count = build.ReplicaBatch(c), min(1, c.Device.Count)
		if o.Generate > 0 {
			c.Train.Batch = o.Generate
		}
		if o.Quantizer != nil {
			c.Quantizer = o.Quantizer.Tables()
			return nil
		}
		return build.FindPlugins(c, c.Quantizer.Forward().Plugins(), t.search, o.Finder)
	})
	if err != nil {
		return err
	}
	if err := t.compile(ctx, o); err != nil {
		return err
	}
	upload := t.built.Compiled.UploadParams
	if t.replaced {
		upload = t.built.Compiled.StartParams
	}
	if t.hub != nil {
		t.state, err = upload(step.LoadParams(t.built.Compiled.Plan().Model, t.hub.Values))
		return errors.Join(err, t.hub.Err())
	}
	return checkpoint.Use(rundir.At(t.dir).Checkpoints(), t.step, func(f *checkpoint.File) error {
		if err := t.record.CheckOwner(rundir.At(t.dir), f.Step, f.Meta); err != nil {
			return err
		}
		t.step = f.Step
		use := func(load step.LoadFunc) (err error) {
			t.state, err = upload(load)
			return err
		}
		return provenance.UseWeights(rundir.At(t.dir), &t.record.Record, f, use)
	})
}

// compile collects the quantizers' programs and compiles the forward pass with them.
func (t *Model) compile(ctx context.Context, o Options) error {
	m, err := build.Model(t.cfg)
	if err != nil {
		return err
	}
	pieces := step.Pieces(o.Generate)
	if o.Score {
		pieces = append(pieces, t.scoredTokens())
	}
	atOnce := 0
	if o.NoData && o.Generate > 0 && !o.Score {
		atOnce = step.Piece
	}
	file := rundir.At(t.dir).Config().Name
	if t.hub != nil {
		file = "the run.toml that 'cage import' makes"
	}
	err = t.built.Build(ctx, build.Request{
		Piece: atOnce, NoAttention: o.Export, Config: t.cfg, Model: m, Step: t.step,
		Batch: t.cfg.Train.Batch, Pieces: pieces, Forward: true, Finder: o.Finder,
		Options: plugin.Options{Logger: o.Logger},
	}, o.Logger.Warn, file)
	if err != nil || t.replaced {
		return err
	}
	// Programs for activations depend on the batch, so they are compared only at the run's batch.
	same := *t.built.Programs
	if o.Generate > 0 {
		same.Activations = nil
	}
	if changed := build.Changed(t.record.Programs, same.Hashes()); len(changed) > 0 {
		o.Logger.Warn("a quantizer has changed since the run: this is not the model that was trained",
			"programs", len(changed), "first", changed[0])
	}
	return nil
}

// Step returns the number of optimizer steps that the checkpoint has completed.
func (t *Model) Step() int { return t.step }

// Average returns train.average, which says how the weights were averaged over steps; "" if they
// were not.
func (t *Model) Average() string {
	if t.cfg.Train.Averaging() == nil {
		return ""
	}
	return t.cfg.Train.Average
}

// Identity returns a string that identifies the checkpoint among those of all runs, even if the run
// directory has moved. It is empty for a Hugging Face checkpoint.
func (t *Model) Identity() string {
	if t.record.Run == "" {
		return ""
	}
	return fmt.Sprintf("%s step %d", t.record.Run, t.step)
}

// Quantizers returns a digest that distinguishes quantizers with the same names: of the programs
// for weights, and of the plugins for activations, whose programs depend on the number of tokens
// computed at once. It is empty if nothing is quantized.
func (t *Model) Quantizers() string {
	hashes := (&build.Programs{Weights: t.built.Programs.Weights}).Hashes()
	if len(t.built.Programs.Activations) > 0 || len(t.built.Programs.Pieces) > 0 {
		for _, u := range t.built.Programs.Used {
			if !strings.HasSuffix(u.Table, config.RoleWeights) {
				hashes["plugin of "+u.Table] = u.SHA256
			}
		}
	}
	return digest.Named(hashes)
}

// Evaluate returns the mean loss over the first batches (all of them if batches is 0), and the
// number of tokens; see [step.Evaluate].
func (t *Model) Evaluate(ctx context.Context, batches int) (loss float64, tokens int64, err error) {
	if t.data == nil && t.cfg.Model.Language() {
		return 0, 0, fmt.Errorf("%s was opened without data", t.dir)
	}
	var sequence step.Sequence
	var verification *build.Verification
	if t.data != nil {
		verification = build.VerifyFiles(t.data)
		defer verification.Close()
		if sequence, err = build.OpenSequence(t.cfg, t.data, t.built.Compiled.Batch()); err != nil {
			return 0, 0, err
		}
	}
	sequence.Progress = func(done, all int64) { t.log.Info("evaluating", "batches", done, "of", all) }
	means, err := step.Evaluate(ctx, t.built.Compiled, t.state, sequence, batches)
	if err != nil {
		return 0, 0, err
	}
	return means[0].Loss, means[0].Targets, verification.Wait()
}

// Close releases all resources.
func (t *Model) Close() {
	if t.evaluator != nil {
		t.evaluator.Close()
	}
	if t.hub != nil {
		t.hub.Close()
	}
	if t.state != nil {
		t.state.Close()
	}
	t.built.Close()
	if t.data != nil {
		t.data.Close()
	}
}

// IsHub reports whether dir contains a Hugging Face checkpoint and is not a run directory.
func IsHub(dir string) bool {
	run, err := rundir.At(dir).Config().Exists()
	return !run && err == nil && huggingface.IsCheckpoint(vfs.At(dir))
}

// openFromHub opens the Hugging Face checkpoint in dir unchanged, in full precision.
func openFromHub(ctx context.Context, dir string, o Options) (*Model, error) {
	if o.Data == "" && !o.NoData {
		return nil, fmt.Errorf("%s is a Hugging Face checkpoint, which has no validation set: name a "+
			"token or chat file with --data; to export it, make a run of it with `cage import`", dir)
	}
	hub, err := OpenHub(dir, "", o.Step, o.Context, o.Logger)
	if err != nil {
		return nil, err
	}
	from := &provenance.Origin{End: hub.Checkpoint.Config.Tokens.End}
	record := &Record{Record: provenance.Record{Initial: from, Tokenizer: hub.Tokenizer}}
	t := &Model{dir: dir, cfg: hub.Config, hub: hub.Checkpoint, record: record, log: o.Logger}
	return t.open(ctx, o)
}

// NoQuantizer, as the name of a plugin, means that nothing is quantized.
const NoQuantizer = "none"

// A Quantizer replaces the quantizers of a run without training.
type Quantizer struct {
	Plugin string // name or path; [NoQuantizer] for none
	Params map[string]any
	// WeightsOnly leaves activations unquantized.
	WeightsOnly bool
}

// String names the plugin, its parameters, and whether it quantizes only weights. Quantizers that
// give different results have different strings.
func (q *Quantizer) String() string {
	text := q.Plugin
	if len(q.Params) > 0 {
		text += fmt.Sprint(" ", q.Params) // fmt prints maps in key order
	}
	if q.WeightsOnly {
		text += ", weights only"
	}
	return text
}

// Tables returns the quantizer tables of a configuration that uses this quantizer.
func (q *Quantizer) Tables() config.Quantizer {
	named := func(role string) *config.Plugin {
		return &config.Plugin{Table: "quantizer." + role, Name: q.Plugin, Params: q.Params}
	}
	var out config.Quantizer
	if q.Plugin != NoQuantizer {
		if out.Weights = named(config.RoleWeights); !q.WeightsOnly {
			out.Activations = named(config.RoleActivations)
		}
	}
	return out
}

// openData opens the token file or chat file to evaluate on. It may be of another kind than the
// training data.
func (t *Model) openData(o Options) error {
	if !t.cfg.Model.Language() {
		if o.Data != "" {
			return fmt.Errorf("%s: a model of kind %q is not evaluated on data", t.dir, t.cfg.Model.Kind)
		}
		return nil
	}
	var err error
	switch {
	case o.NoData:
		return nil
	case o.Data == "" && t.cfg.Data.Validation == "":
		return fmt.Errorf("%s has no validation data of its own: name a token or chat file with --data",
			t.dir)
	case o.Data == "":
		if t.data, err = build.FindValidation(t.cfg, t.search); err != nil {
			return fmt.Errorf("%w\nname a token or chat file with --data", err)
		}
		return nil
	}
	if t.data, err = dataset.Open(o.Data); err != nil {
		return err
	}
	own := provenance.Tokens{Tokenizer: t.record.Tokenizer, Dir: t.dir, Vocab: t.cfg.Model.Vocab}
	if err := own.Check(t.data, "", o.Logger); err != nil {
		return err
	}
	t.data.Limit(own.Vocab)
	t.cfg, err = t.cfg.Changed(func(c *config.Config) error {
		c.Data.SetKind(build.KindOf(t.data))
		return nil
	})
	return err
}

// tokenizer opens the run's tokenizer. Only a Hugging Face checkpoint, or a run imported from one,
// may have none.
func (t *Model) tokenizer() (tokenizer.Tokenizer, error) {
	if t.record.Tokenizer == nil {
		return nil, fmt.Errorf("%s has no %s", t.dir, tokenizer.DefinitionFile)
	}
	return build.FindTokenizer(t.cfg, t.search, *t.record.Tokenizer)
}
