package train

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/cage-qat/cage/host/assembly"
	"github.com/cage-qat/cage/host/checkpoint"
	"github.com/cage-qat/cage/host/config"
	"github.com/cage-qat/cage/host/engine"
	"github.com/cage-qat/cage/host/memory"
	"github.com/cage-qat/cage/host/metrics"
	"github.com/cage-qat/cage/host/model"
	"github.com/cage-qat/cage/host/plugin"
	"github.com/cage-qat/cage/host/rundir"
	"github.com/cage-qat/cage/host/schedule"
	"github.com/cage-qat/cage/host/step"
	"github.com/cage-qat/cage/internal/vfs"
)

// Options are what a run needs beside its configuration.
type Options struct {
	// Resume goes on from the newest checkpoint of the run directory; a
	// directory without a run starts from the beginning.
	Resume bool
	// StopAfter ends the process's part of the run after that many steps of the
	// whole run, with a checkpoint, as an interruption would; 0 runs to the end.
	StopAfter int
	// Files is the file system of the run directory; nil means the operating system's.
	Files vfs.FS
	// Finder finds plugins; nil means plugin.NewFinder().
	Finder *plugin.Finder
	// Logger receives the host's and the plugins' messages; nil discards them.
	Logger hclog.Logger
	// Console receives the progress display; nil shows none.
	Console io.Writer
}

func (o Options) withDefaults() (Options, error) {
	if o.Logger == nil {
		o.Logger = hclog.NewNullLogger()
	}
	if o.Finder == nil {
		var err error
		if o.Finder, err = plugin.NewFinder(); err != nil {
			return o, err
		}
		o.Finder.Notify = plugin.Inform(o.Logger)
	}
	if o.Console == nil {
		o.Console = io.Discard
	}
	return o, nil
}

// ErrInterrupted is returned when the context ended before the run did. If training
// had begun, a checkpoint has been saved and the summary so far is returned too.
var ErrInterrupted = errors.New("training was interrupted")

// ErrNotFinite is wrapped by the error of a run that ended because its loss or
// gradient was not finite more often than train.max_skipped and train.nan_policy
// allow. A checkpoint of the step before has been saved.
var ErrNotFinite = errors.New("not finite")

// Summary is what a run came to, as in summary.json.
type Summary struct {
	metrics.Summary
	// Dir is the run directory.
	Dir string `json:"dir"`
	// Method, Form, Lambda and Silence repeat the method, for tables.
	Method  string  `json:"method"`
	Form    string  `json:"form"`
	Lambda  float64 `json:"lambda"`
	Silence float64 `json:"silence"`
	// StartSeconds is the time from the call to the first step; of it,
	// PluginSeconds went by until the plugins had started and handed over.
	StartSeconds  float64 `json:"start_seconds"`
	PluginSeconds float64 `json:"plugin_seconds"`
}

// Run trains as configured. When ctx ends, the step under way is finished, a
// checkpoint is saved, and the error is [ErrInterrupted].
func Run(ctx context.Context, cfg *config.Config, opts Options) (*Summary, error) {
	began := time.Now()
	opts, err := opts.withDefaults()
	if err != nil {
		return nil, err
	}
	r := &run{cfg: cfg, opts: opts, log: opts.Logger.Named("train"), began: began, dir: rundir.On(opts.Files, cfg.Train.Out)}
	defer r.close()
	if err := r.prepare(ctx); err != nil {
		if ctx.Err() != nil {
			return nil, fmt.Errorf("%w before it began: %w", ErrInterrupted, err)
		}
		return nil, err
	}
	if err := r.open(); err != nil {
		return nil, err
	}
	summary, err := r.train(ctx)
	if err != nil && summary == nil {
		r.recordError(err)
	}
	return summary, err
}

// run is one training in progress.
type run struct {
	cfg   *config.Config
	opts  Options
	log   hclog.Logger
	began time.Time

	data     *assembly.Data // nil for a problem without data
	model    model.Model
	programs *assembly.Programs
	device   *engine.Device
	kernels  *step.Kernels
	rates    schedule.Schedule
	batches  assembly.Batches

	verification *verification  // of the data, in the background
	verified     []verifiedFile // once it is done

	dir        rundir.Dir
	lock       vfs.Lock
	state      *step.State
	done       progress
	records    *recording
	last       metrics.Record // the newest record of the run that is resumed
	trajectory *trajectory
	movement   *movement
	display    display

	checkpoints *checkpoint.Keeper

	identity  string
	saving    saving
	evaluated int // step of the newest recorded evaluation, 0 for none
	// uncorrected are the weights that got no correction in the last step.
	uncorrected []string
}

// progress is the part of a run's state that is not tensors. It is saved in
// checkpoints.
type progress struct {
	Step    int     `json:"step"`    // steps done, skipped ones included
	Skipped int     `json:"skipped"` // steps that were not finite
	Tokens  int64   `json:"tokens"`
	Seconds float64 `json:"seconds"`
	// Uncorrected counts the corrections of single weights that were left out.
	Uncorrected int `json:"uncorrected,omitempty"`
}

// prepare makes everything that does not depend on the run directory.
func (r *run) prepare(ctx context.Context) error {
	var err error
	if r.cfg.Model.Language() {
		if r.data, err = assembly.OpenData(r.cfg); err != nil {
			return err
		}
		r.data.Pin(r.cfg)
		r.verification = verifyFiles(r.data.Train, r.data.Validation)
	}
	if r.model, err = assembly.Model(r.cfg); err != nil {
		return err
	}
	if r.rates, err = newSchedule(r.cfg); err != nil {
		return err
	}
	if r.batches, err = assembly.OpenBatches(r.cfg, r.model, r.data); err != nil {
		return err
	}
	r.programs, err = assembly.Collect(ctx, assembly.Request{
		Config: r.cfg, Model: r.model, Batch: assembly.ReplicaBatch(r.cfg), Finder: r.opts.Finder, Options: plugin.Options{Logger: r.opts.Logger},
	})
	if err != nil {
		return err
	}
	if err := assembly.CheckMemory(r.cfg, r.model, r.programs); err != nil {
		return tooLarge(err)
	}
	if r.device, err = assembly.Device(r.cfg, r.log.Warn); err != nil {
		return err
	}
	plan, err := assembly.Plan(r.cfg, r.model, r.programs)
	if err != nil {
		return err
	}
	if r.kernels, err = step.Compile(r.device, plan); err != nil {
		return err
	}
	if err := r.kernels.Prepare(); err != nil {
		return err
	}
	return r.prepareMovement()
}

// newSchedule makes the learning-rate schedule of the configuration.
func newSchedule(cfg *config.Config) (schedule.Schedule, error) {
	s := cfg.Schedule
	c := schedule.Default(schedule.Kind(s.Kind), s.Rate, cfg.Train.Steps)
	c.Warmup = s.WarmupSteps(cfg.Train.Steps)
	c.FinalFrac, c.DecayFrac = s.Floor, s.Decay
	// One-cycle states its floor relative to its start, rate/100.
	c.FinalDiv = 1 / (s.Floor * c.Div)
	if s.Floor == 0 {
		c.FinalDiv = 1e30
	}
	out, err := schedule.New(c)
	if err != nil {
		return nil, cfg.ErrorAt("schedule.kind", "%w", err)
	}
	return out, nil
}

func (r *run) close() {
	r.closeRecords()
	r.movement.close()
	if r.state != nil {
		r.state.Close()
	}
	if r.kernels != nil {
		r.kernels.Close()
	}
	if r.device != nil {
		r.device.Close()
	}
	r.verification.close()
	if r.data != nil {
		r.data.Close()
	}
	if r.lock != nil {
		r.lock.Unlock()
	}
}

// closeRecords closes the records. What counts of them was synced before.
func (r *run) closeRecords() {
	var err error
	if r.records != nil {
		err = r.records.file.Close()
	}
	if err := errors.Join(err, r.trajectory.close()); err != nil {
		r.log.Warn("the records could not be closed", "error", err)
	}
}

// warnOfDamage tells of lines that were cut off because they are no records.
func (r *run) warnOfDamage(path vfs.Path, damage error) {
	if damage != nil {
		r.log.Warn("the records were damaged behind the checkpoint: they are cut off there", "path", path, "damage", damage)
	}
}

// tokensPerStep is the number of targets of one optimizer step; a problem has none.
func (r *run) tokensPerStep() int64 {
	if !r.cfg.Model.Language() {
		return 0
	}
	return int64(r.cfg.Train.Batch) * int64(r.cfg.Model.Context) * int64(r.cfg.Train.Accumulate)
}

// tooLarge says how to go on against the estimate.
func tooLarge(err error) error {
	return fmt.Errorf("%w\nthe estimate may be off by %.0f %%; train.memory_check = \"off\" tries it all the same", err, 100*memory.Accuracy)
}

func stepError(step int, err error) error { return fmt.Errorf("step %d: %w", step, err) }
