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
	// Source is the model in dir; nil opens it. It is not closed.
	Source *Source
	// Data is a token file or chat file to evaluate on; "" means the validation set.
	Data string
	// AnyTokenizer does not compare the tokenizer of Data with the model's.
	AnyTokenizer bool
	// NoData opens no data: the model can then generate, but cannot be evaluated.
	NoData bool
	// Context is the sequence length, in tokens, for a Hugging Face checkpoint; see [Import]. That of
	// a run is fixed.
	Context int
	// Generate is the number of sequences that [Model.Begin] continues at once. If it is 0, the model
	// cannot generate, and evaluation uses the batch size that a replica had in the run.
	Generate int
	// Like is a model whose data and batches are read, too; see [Model.Compare].
	Like *Model
	// Export opens the model for [Model.Export] only.
	Export bool
	// Score opens the model for [Model.Score].
	Score bool
	// Quantizer replaces the run's own quantizers; nil keeps them.
	Quantizer *Quantizer
	Finder    *plugin.Finder // nil means plugin.NewFinder()
	Logger    hclog.Logger   // nil discards messages
}

// Source is a model whose weights can be read: a checkpoint of a run, or a Hugging Face checkpoint,
// which is used unchanged, in full precision.
type Source struct {
	Dir    string
	Config *config.Config
	Step   int // of the run; 0 for a Hugging Face checkpoint
	// Record is that of the run; for a Hugging Face checkpoint, only its tokenizer and end tokens.
	Record *Record
	Search rundir.Search           // for files outside of the run directory
	Hub    *huggingface.Checkpoint // nil if the model is of a run
	file   *checkpoint.File        // of the run, open since a training may remove it
}

// OpenSource opens the model in dir, and logs the warnings of a Hugging Face checkpoint. step is
// that of a run's checkpoint; 0 means the newest one. See [Import] for context, which is for a
// Hugging Face checkpoint. The caller must close the result.
func OpenSource(dir string, step, context int, log hclog.Logger) (s *Source, err error) {
	s = &Source{Dir: dir}
	if IsHub(dir) {
		if step > 0 {
			return nil, fmt.Errorf(
				"%s is a Hugging Face checkpoint, which has no steps: leave out --step", dir)
		}
		if s.Hub, s.Config, err = openHub(dir, "", context); err != nil {
			return nil, err
		}
		for _, warning := range s.Hub.Config.Warnings {
			log.Warn(warning)
		}
		s.Record = &Record{}
		s.Record.Initial = &provenance.Origin{End: s.Hub.Config.Tokens.End}
		files, err := ModelFiles(dir)
		if err == nil {
			s.Record.Tokenizer, err = tokenizerOf(dir, files)
		}
		if err != nil {
			return nil, errors.Join(err, s.Close())
		}
	} else {
		run := rundir.At(dir)
		if s.Config, err = run.LoadConfig(); err != nil {
			return nil, fmt.Errorf("%w%s", err, huggingface.Hint(dir))
		}
		if context > 0 {
			return nil, fmt.Errorf("%s is a run, whose context is fixed (%d): leave out --context",
				dir, s.Config.Model.Context)
		}
		if s.Record, err = ReadRecord(run); err != nil {
			return nil, err
		}
		if s.file, err = checkpoint.OpenStep(run.Checkpoints(), step); err != nil {
			return nil, err
		}
		s.Step = s.file.Step
	}
	s.Search = rundir.Search{Run: dir, WorkDir: s.Record.Directory}
	return s, nil
}

// Use calls use with a function that loads the model's tensors, and with the checkpoint of a run.
func (s *Source) Use(use func(load step.LoadFunc, f *checkpoint.File) error) error {
	if s.Hub != nil {
		m, err := build.Model(s.Config)
		if err != nil {
			return err
		}
		return errors.Join(use(step.LoadParams(m, s.Hub.Values), nil), s.Hub.Err())
	}
	run := rundir.At(s.Dir)
	return s.file.Use(func(f *checkpoint.File) error {
		if err := s.Record.CheckOwner(run, f.Step, f.Meta); err != nil {
			return err
		}
		return provenance.UseWeights(run, &s.Record.Record, f, func(load step.LoadFunc) error {
			return use(load, f)
		})
	})
}

// OpenData opens a token file or chat file for the model.
func (s *Source) OpenData(path string, log hclog.Logger) (*dataset.File, error) {
	file, err := dataset.Open(path)
	if err != nil {
		return nil, err
	}
	own := provenance.Tokens{Tokenizer: s.Record.Tokenizer, Dir: s.Dir, Vocab: s.Config.Model.Vocab}
	if err := own.Check(file, "", log); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

// Close closes the files of the model.
func (s *Source) Close() error {
	if s.Hub == nil {
		return s.file.Close()
	}
	return s.Hub.Close()
}

// Model is a checkpoint of a run, ready for evaluation with the run's quantizers.
type Model struct {
	*Source
	borrowed  bool // Source is not closed with the model
	log       hclog.Logger
	data      *dataset.File // data to evaluate on; nil for a problem without data
	state     *step.State
	quantizer *Quantizer // replaces the quantizers of the training; nil: they are used
	built     build.Runtime

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
	if o.Data == "" && !o.NoData && IsHub(dir) {
		return nil, fmt.Errorf("%s is a Hugging Face checkpoint, which has no validation set: name a "+
			"token or chat file with --data; to export it, make a run of it with `cage import`", dir)
	}
	t := &Model{log: o.Logger, quantizer: o.Quantizer, sequences: o.Generate}
	if t.Source = o.Source; t.Source == nil {
		t.Source, err = OpenSource(dir, o.Step, o.Context, o.Logger)
	} else {
		t.borrowed, t.Source = true, new(*t.Source)
	}
	if err != nil {
		return nil, err
	}
	if t.quantizer != nil && t.Record.Posttrained != nil {
		err = fmt.Errorf("%s has been quantized already: to use another quantizer, evaluate the "+
			"model it was made from", dir)
	} else {
		err = t.load(ctx, o)
	}
	if err != nil {
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
	t.Config, err = t.Config.Changed(func(c *config.Config) error {
		// A single replica computes the batch that each replica computed in training.
		c.Train.Batch, c.Device.Count = build.ReplicaBatch(c), min(1, c.Device.Count)
		if o.Generate > 0 {
			c.Train.Batch = o.Generate
		}
		if o.Like != nil {
			c.Train.Batch, c.Data = o.Like.Config.Train.Batch, o.Like.Config.Data
			c.Model.Context = o.Like.Config.Model.Context
		}
		if o.Quantizer != nil {
			c.Quantizer = o.Quantizer.Tables()
			return nil
		}
		return build.FindPlugins(c, c.Quantizer.Forward().Plugins(), t.Search, o.Finder)
	})
	if err != nil {
		return err
	}
	if err := t.compile(ctx, o); err != nil {
		return err
	}
	upload := t.built.Compiled.UploadParams
	if t.quantizer != nil {
		upload = t.built.Compiled.StartParams
	}
	return t.Use(func(load step.LoadFunc, _ *checkpoint.File) (err error) {
		t.state, err = upload(load)
		return err
	})
}

// compile collects the quantizers' programs and compiles the forward pass with them.
func (t *Model) compile(ctx context.Context, o Options) error {
	m, err := build.Model(t.Config)
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
	file := rundir.At(t.Dir).Config().Name
	if t.Hub != nil {
		file = "the run.toml that 'cage import' makes"
	}
	err = t.built.Build(ctx, build.Request{
		Piece: atOnce, NoAttention: o.Export, Config: t.Config, Model: m,
		Batch: t.Config.Train.Batch, Pieces: pieces, Forward: true, Finder: o.Finder,
		Options: plugin.Options{Logger: o.Logger},
	}, o.Logger.Warn, file)
	if err != nil || t.quantizer != nil {
		return err
	}
	// Programs for activations depend on the batch, so they are compared only at the run's batch.
	same := *t.built.Programs
	if o.Generate > 0 {
		same.Activations = nil
	}
	if changed := build.Changed(t.Record.Programs, same.Hashes()); len(changed) > 0 {
		o.Logger.Warn("a quantizer has changed since the run: this is not the model that was trained",
			"programs", len(changed), "first", changed[0])
	}
	return nil
}

// Step returns the number of optimizer steps that the checkpoint has completed.
func (t *Model) Step() int { return t.Source.Step }

// Average returns train.average, which says how the weights were averaged over steps; "" if they
// were not.
func (t *Model) Average() string {
	if t.Config.Train.Averaging() == nil {
		return ""
	}
	return t.Config.Train.Average
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
	if t.data == nil && t.Config.Model.Language() {
		return 0, 0, fmt.Errorf("%s was opened without data", t.Dir)
	}
	var sequence step.Sequence
	var verification *build.Verification
	if t.data != nil {
		verification = build.VerifyFiles(t.data)
		defer verification.Close()
		if sequence, err = build.OpenSequence(t.Config, t.data, t.built.Compiled.Batch()); err != nil {
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
	if !t.borrowed {
		t.Source.Close()
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
	if !t.Config.Model.Language() {
		if o.Data != "" {
			return fmt.Errorf("%s: a model of kind %q is not evaluated on data", t.Dir, t.Config.Model.Kind)
		}
		return nil
	}
	var err error
	switch {
	case o.NoData:
		return nil
	case o.Data == "" && t.Config.Data.Validation == "":
		return fmt.Errorf("%s has no validation data of its own: name a token or chat file with --data",
			t.Dir)
	case o.Data == "":
		if t.data, err = build.FindValidation(t.Config, t.Search); err != nil {
			return fmt.Errorf("%w\nname a token or chat file with --data", err)
		}
		return nil
	}
	if o.AnyTokenizer {
		t.data, err = dataset.Open(o.Data)
	} else {
		t.data, err = t.OpenData(o.Data, o.Logger)
	}
	if err != nil {
		return err
	}
	t.data.Limit(t.Config.Model.Vocab)
	t.Config, err = t.Config.Changed(func(c *config.Config) error {
		c.Data.SetKind(build.KindOf(t.data))
		return nil
	})
	return err
}

// tokenizer opens the run's tokenizer. Only a Hugging Face checkpoint, or a run imported from one,
// may have none.
func (t *Model) tokenizer() (tokenizer.Tokenizer, error) {
	if t.Record.Tokenizer == nil {
		return nil, fmt.Errorf("%s has no %s", t.Dir, tokenizer.DefinitionFile)
	}
	return build.FindTokenizer(t.Config, t.Search, *t.Record.Tokenizer)
}
