// Package train is the training loop: it draws batches, evaluates the schedules of α_t and λ_t,
// runs the compiled step, evaluates the model, writes records, and saves and loads checkpoints. All
// files of a run are in one directory:
//
//	run.toml            the resolved configuration, with the hashes of plugins and data
//	provenance.json     the run's identity, the build, the plugins and the hashes of their programs
//	metrics.jsonl       one record per logged step
//	trajectory.jsonl    the points visited, for a problem without data
//	samples.jsonl       texts that a language model generated during training
//	checkpoints/        the most recent states
//	summary.json        the results
//
// The mathematics is in other packages: the step in host/train/step, the method in host/cage, the
// model in host/model. This package only does control flow and bookkeeping.
//
// The packages in this directory, from high level to low level:
//
//	conformance  runs sdktest's checks on a plugin's process and on devices
//	provenance   the origin of a run and of its weights
//	build        assembles a run from its configuration: data, programs, a compiled step
//	step         one compiled training step, with its state; evaluation and decoding of a model
//	plugin       plugins as processes
//	processes    several processes that train one model, and their rendezvous
//	checkpoint   named tensors in files
//	rundir       the files of a run; listing runs
//	config       run.toml
//	console, metrics  records of training, and their display
//
// Configuration is turned into parts (config, plugin, build). The loop draws batches, runs the
// step, and writes its results to the run directory as records and checkpoints.
package train

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/cage-qat/cage/host/cage"
	"github.com/cage-qat/cage/host/compute/device"
	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/data/tokenizer"
	"github.com/cage-qat/cage/host/model"
	"github.com/cage-qat/cage/host/train/build"
	"github.com/cage-qat/cage/host/train/checkpoint"
	"github.com/cage-qat/cage/host/train/config"
	"github.com/cage-qat/cage/host/train/metrics"
	"github.com/cage-qat/cage/host/train/plugin"
	"github.com/cage-qat/cage/host/train/provenance"
	"github.com/cage-qat/cage/host/train/rundir"
	"github.com/cage-qat/cage/host/train/step"
	"github.com/cage-qat/cage/internal/vfs"
)

// Options configure how a run is executed.
type Options struct {
	// Resume continues from the newest checkpoint in the run directory; if there is no
	// run in it, training starts from the beginning.
	Resume bool
	// StopAfter stops the run after this many steps in total, with a checkpoint, like an
	// interruption; 0 runs to the end.
	StopAfter int
	// Files is the file system of the run directory; nil means the operating system's.
	Files vfs.FS
	// Finder finds plugins; nil means plugin.NewFinder().
	Finder *plugin.Finder
	// Logger receives the host's and the plugins' messages; nil discards them.
	Logger hclog.Logger
	// EndOfTurn returns the token that ends a turn in the chat template among the files of a
	// tokenizer, or [tokenizer.NoToken]; nil means that no template is known.
	EndOfTurn func(files map[string][]byte, tok tokenizer.Tokenizer) int32
	// Console receives the progress display; nil shows none.
	Console io.Writer

	// Processes connects the processes that train together; if nil, this process trains alone. All
	// have the same configuration, whose device.count is the total number of GPUs. The first
	// writes the run directory, which the others must be able to read. Run calls Leave when its
	// work is done, and thereby reports its error to the others if it has failed.
	Processes Processes
}

func (o Options) withDefaults() (_ Options, err error) {
	o.Console = cmp.Or(o.Console, io.Discard)
	if o.EndOfTurn == nil {
		o.EndOfTurn = func(map[string][]byte, tokenizer.Tokenizer) int32 { return tokenizer.NoToken }
	}
	o.Finder, o.Logger, err = plugin.Defaults(o.Finder, o.Logger)
	return o, err
}

// ErrInterrupted is returned if the context ended before the run did. If training had begun, a
// checkpoint has been saved, and the summary so far is also returned.
var ErrInterrupted = errors.New("training was interrupted")

// ErrNotFinite is wrapped by the error of a run whose loss or gradient was not finite more often
// than train.max_skipped and train.nan_policy allow. The previous step has been saved.
var ErrNotFinite = errors.New("not finite")

// Run trains a model as configured. When ctx ends, Run finishes the current step, saves a
// checkpoint, and returns [ErrInterrupted].
func Run(ctx context.Context, cfg *config.Config,
	opts Options) (summary *metrics.Summary, err error) {
	began := time.Now()
	if cfg.Untrained() {
		return nil, cfg.ErrorAt("train.steps", "found 0: there is nothing to train").
			WithHint("want at least 1; a run can start from this one with model.init")
	}
	if opts, err = opts.withDefaults(); err != nil {
		return nil, err
	}
	r := &run{cfg: cfg, opts: opts, log: opts.Logger.Named("train"), began: began,
		dir: rundir.On(opts.Files, cfg.Train.Out)}
	defer r.close()
	defer func() { err = r.leave(summary != nil, err) }()
	open := r.open
	if r.follows() {
		open = r.follow
	}
	if err = r.prepare(ctx); err == nil {
		err = open(ctx)
	}
	if err != nil {
		if ctx.Err() != nil {
			return nil, fmt.Errorf("%w before it began: %w", ErrInterrupted, err)
		}
		return nil, r.Explain(err)
	}
	if opts.Processes != nil { // they stop together, after a vote
		r.stopVote.ctx, ctx = ctx, context.WithoutCancel(ctx)
	}
	summary, err = r.train(ctx)
	err = r.Explain(r.awaitOthers(err))
	if err != nil && summary == nil && !r.follows() {
		r.recordError(err)
	}
	return summary, err
}

type run struct {
	cfg   *config.Config
	opts  Options
	log   hclog.Logger
	began time.Time

	data   *build.Data // nil for a problem without data
	model  model.Model
	rates  cage.Schedule
	method cage.Settings // resolved
	pull   *cage.Pull    // of the decoupled correction; nil if there is none or it is unknown
	// pullRates are the learning rates of the correction; see correctionPull.
	pullRates cage.Schedule
	batches   build.Batches
	build.Runtime

	verification *build.Verification // of the data, in the background
	verified     []provenance.File   // set once verification has finished

	dir        rundir.Dir
	lock       vfs.Lock
	state      *step.State
	done       provenance.Progress
	records    *recording
	scalars    *metrics.EventFile             // records for TensorBoard; nil if disabled
	last       metrics.Record                 // newest record of the resumed run
	problem    *model.Quadratic               // nil for a language model
	trajectory *metrics.Writer[metrics.Point] // points of the problem; nil if they are not recorded
	samples    *samples                       // texts sampled during training; nil if disabled
	movement   *movement
	display    display

	checkpoints *checkpoint.Keeper

	identity string
	initial  *provenance.Origin // source of the initial weights; nil if they were drawn
	teacher  *provenance.Origin // source of the teacher's weights; nil without a teacher
	saving   saving
	stopVote stopVote
	// startedFrom is the directory that model.init names, if this process has read it.
	startedFrom string
	// summarized is set if the run was finished before, with a complete summary.
	summarized bool
	evaluated  int // step of the newest recorded evaluation, 0 for none
	// uncorrected names the weights that got no correction in the last step.
	uncorrected []string
}

func (r *run) prepare(ctx context.Context) error {
	var err error
	if r.cfg.Model.Language() {
		if r.data, err = build.OpenData(r.cfg); err != nil {
			return err
		}
		if r.cfg, err = r.data.Pinned(r.cfg); err != nil {
			return err
		}
		r.verification = build.VerifyFiles(r.data.Train, r.data.Validation)
	}
	if r.model, err = build.Model(r.cfg); err != nil {
		return err
	}
	r.rates, r.method = r.cfg.Schedule.Schedule(r.cfg.Train.Steps), r.cfg.ResolvedMethod()
	if r.batches, err = build.OpenBatches(r.cfg, r.model, r.data); err != nil {
		return err
	}
	if r.data != nil { // otherwise errors would only occur after training
		if cut, unused := r.data.Train.Longer(r.cfg.Model.Context); cut > 0 {
			r.log.Warn("conversations longer than model.context are cut at the end",
				"cut", cut, "without a token in the loss", unused, "of", r.data.Train.Documents())
		}
		if _, err := build.OpenSequence(r.cfg, r.data.Validation, 1); err != nil {
			return r.cfg.ErrorAt("data.validation", "%w", err)
		}
		// Tokenize the prompts before a run directory is created.
		if asked := r.cfg.Train.Samples; len(asked) > 0 {
			tok, err := r.openTokenizer()
			if err != nil {
				return err
			}
			r.samples = &samples{tokenizer: tok}
			for _, text := range asked {
				ids, err := build.Beginning(r.cfg, tok, text)
				if err != nil {
					return r.cfg.ErrorAt("train.samples", "%q: %w", text, err)
				}
				r.samples.ids = append(r.samples.ids, ids)
			}
		}
	}
	if err := r.sameConfiguration(); err != nil {
		return err
	}
	request := r.request(r.cfg)
	request.Processes = r.opts.Processes
	if err := r.Build(ctx, request, r.log.Warn, ""); err != nil {
		return err
	}
	if err := r.sameRuntime(); err != nil {
		return err
	}
	r.cfg = r.Programs.Pinned(r.cfg)
	if err := r.Prepare(r.cfg.Method.ParetoEvery > 0); err != nil {
		return err
	}
	onGPU := r.cfg.Device.Kind == device.CUDA
	if !r.cfg.IsSet("device.precision") && (onGPU || engine.MultipliesBFloat16()) {
		r.log.Info(`this device is faster with device.precision = "bfloat16"`)
	}
	return r.prepareMovement()
}

// request returns the request for the programs of this run, with the GPU count of cfg.
func (r *run) request(cfg *config.Config) build.Request {
	return build.Request{
		Config: r.cfg, Model: r.model, Batch: build.ReplicaBatch(cfg),
		Pieces: step.Pieces(len(r.cfg.Train.Samples)),
		Finder: r.opts.Finder, Options: plugin.Options{Logger: r.opts.Logger},
	}
}

func (r *run) close() {
	r.collect(true)
	var errs []error // the records are synced already, so an error is only a warning
	if r.records != nil {
		errs = append(errs, r.records.file.Close())
	}
	if r.trajectory != nil {
		errs = append(errs, r.trajectory.Close())
	}
	if r.samples != nil && r.samples.file != nil {
		errs = append(errs, r.samples.file.Close())
	}
	r.closeScalars()
	if err := errors.Join(errs...); err != nil {
		r.log.Warn("the records could not be closed", "error", err)
	}
	r.movement.close()
	if r.state != nil {
		r.state.Close()
	}
	r.Runtime.Close()
	r.verification.Close()
	if r.data != nil {
		r.data.Close()
	}
	if r.lock != nil {
		r.lock.Unlock()
	}
}

func (r *run) warnOfDamage(damage error) {
	if damage != nil {
		r.log.Warn("the records after the checkpoint were damaged, and are truncated", "damage", damage)
	}
}

func stepError(step int, err error) error { return fmt.Errorf("step %d: %w", step, err) }

// EstimateMemory returns the memory that a run needs: the estimate with which [Run] refuses runs
// that are too large or, on a GPU, the memory of the step as compiled by XLA. It starts the
// plugins, but not the run. Data is opened only if its tokenizer determines the vocabulary size. Of
// opts, only Finder and Logger are used.
func EstimateMemory(ctx context.Context, cfg *config.Config, opts Options) (*build.Report, error) {
	opts, err := opts.withDefaults()
	if err != nil {
		return nil, err
	}
	if cfg.Model.Language() && cfg.Model.Vocab == 0 {
		if cfg, err = build.PinnedToData(cfg); err != nil {
			return nil, err
		}
	}
	m, err := build.Model(cfg)
	if err != nil {
		return nil, err
	}
	programs, err := build.Collect(ctx, build.Request{
		Config: cfg, Model: m, Batch: build.ReplicaBatch(cfg),
		Finder: opts.Finder, Options: plugin.Options{Logger: opts.Logger},
	})
	if err != nil {
		return nil, err
	}
	return build.Memory(cfg, m, programs, opts.Logger.Named("memory").Warn)
}
