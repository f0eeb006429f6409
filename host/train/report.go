package train

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"path/filepath"
	"syscall"

	"github.com/cage-qat/cage/host/cage"
	"github.com/cage-qat/cage/host/model/architecture"
	"github.com/cage-qat/cage/host/train/build"
	"github.com/cage-qat/cage/host/train/config"
	"github.com/cage-qat/cage/host/train/console"
	"github.com/cage-qat/cage/host/train/metrics"
	"github.com/cage-qat/cage/host/train/step"
	"github.com/cage-qat/cage/internal/lists"
	"github.com/cage-qat/cage/internal/resources"
	"github.com/cage-qat/cage/internal/vfs"
)

func (r *run) report(set step.Settings, res step.Result) error {
	losses := metrics.Record{Loss: metrics.Number(res.Loss)}
	if r.teacher != nil {
		losses.Divergence = metrics.Some(res.Divergence)
		losses.CrossEntropy = metrics.Some(res.CrossEntropy)
	}
	rec := r.newRecord(losses, metrics.Number(set.Rate), set.Lambda)
	rec.GradNorm = metrics.Some(res.GradNorm)
	addStatistics(&rec, set, res)
	r.warnMoved(rec)
	if !r.logs(r.done.Step) && res.Counts == nil {
		r.display.step(rec)
		return nil
	}
	// Speed is measured between records.
	before, seconds := r.display.previous, float64(rec.Seconds-r.display.previous.Seconds)
	r.display.previous = rec
	if r.cfg.Model.Language() {
		tokens, steps := 0.0, 0.0 // per second
		if seconds > 0 {
			tokens, steps = float64(rec.Tokens-before.Tokens)/seconds, float64(rec.Step-before.Step)/seconds
		}
		rec.TokensPerSecond = metrics.Some(tokens)
		// All tokens of a batch count: those that are not targets are computed, too.
		flops := steps * float64(r.cfg.Train.Accumulate) *
			r.model.StepFLOPs(r.cfg.Train.Batch, r.cfg.Model.Context)
		rec.FLOPSPerSecond = metrics.Some(flops)
		if peak := r.cfg.Device.PeakTFLOPS; peak > 0 {
			rec.MFU = metrics.Some(flops / (peak * 1e12))
		}
		if bytes := resources.Memory(); bytes > 0 {
			rec.MemoryBytes = metrics.Some(float64(bytes))
		}
	}
	var err error
	if rec.Distance, err = r.distance(); err != nil {
		return err
	}
	r.movement.record(&rec)
	if r.cfg.Diagnostics.Tensors {
		r.addTensors(&rec, set, res)
	}
	r.display.step(rec)
	return r.record(rec)
}

func (r *run) newRecord(losses metrics.Record, rate metrics.Number,
	coefficient float64) metrics.Record {
	done := r.done
	rec := metrics.Record{
		Step: done.Step, LR: rate,
		Loss: losses.Loss, Divergence: losses.Divergence, CrossEntropy: losses.CrossEntropy,
		Tokens: done.Tokens, Counts: done.Counts, Seconds: metrics.Number(done.Seconds),
		Skipped: done.Skipped, Uncorrected: done.Uncorrected,
	}
	switch r.cfg.Method.Name {
	case cage.NameCAGE:
		rec.Lambda = metrics.Some(coefficient)
		if r.pull != nil {
			rec.Strength = metrics.Some(r.done.Strength)
		}
	case cage.NamePARQ:
		rec.Strength = metrics.Some(coefficient)
	}
	return rec
}

// warnMoved warns in the first step of a run if the quantizer rounds numbers of model.init once
// more that were stored in few bits.
func (r *run) warnMoved(rec metrics.Record) {
	const least = 1e-10 // of the squares; less is the rounding of floats
	if rec.Step == 1 && r.initial != nil && len(r.initial.Stored) > 0 && rec.ErrorRel != nil &&
		float64(*rec.ErrorRel) > least {
		r.log.Warn("the quantizer rounds weights of model.init once more, "+
			"which were stored in few bits",
			"by", fmt.Sprintf("%.2g %%", 100*math.Sqrt(float64(*rec.ErrorRel))))
	}
}

func addStatistics(rec *metrics.Record, set step.Settings, res step.Result) {
	if set.ParetoSTE && !res.Skipped {
		rec.ParetoSTE = metrics.Some(res.ParetoSTE)
	}
	if set.Pareto && !res.Skipped {
		rec.Pareto = metrics.Some(res.Pareto)
	}
	if len(res.ErrorNorm2) == 0 {
		return
	}
	var e2, x2, norms float64
	finite := 0
	for i, v := range res.ErrorNorm2 {
		if math.IsNaN(v) || math.IsInf(v, 0) {
			continue
		}
		e2, x2, norms = e2+v, x2+res.ValueNorm2[i], norms+math.Sqrt(v)
		finite++
	}
	mean := norms / float64(max(1, finite))
	rec.ErrorNorm2, rec.ErrorRel = metrics.Some(e2), relative(e2, x2)
	rec.AvgErrNorm = metrics.Some(mean)
	if rec.Lambda == nil {
		return
	}
	rec.AvgCorrNorm = metrics.Some(set.Lambda * mean)
	applied := 0
	if set.Lambda != 0 {
		applied = len(res.ErrorNorm2) - len(res.Uncorrected)
	}
	rec.AppliedParams = &applied
}

func relative(e2, x2 float64) *metrics.Number {
	if e2 == 0 {
		return metrics.Some(0)
	}
	return metrics.Some(e2 / x2)
}

func (r *run) validate(ctx context.Context, set step.Settings) error {
	losses, err := r.evaluate(ctx, r.cfg.Train.EvalBatches)
	if ctx.Err() != nil {
		return nil // the loop notices and saves; the resumed run evaluates
	}
	if err != nil {
		return err
	}
	rec := r.newRecord(r.display.latest, metrics.Number(set.Rate), set.Lambda)
	rec.ValLoss, rec.ValPPL = metrics.Some(losses[0]), r.perplexity(losses[0])
	if rec.Distance, err = r.distance(); err != nil {
		return err
	}
	r.display.console.Update(rec)
	if written, err := r.sample(ctx); !written || err != nil {
		return err
	}
	r.evaluated = r.done.Step
	return r.record(rec)
}

func (r *run) evaluate(ctx context.Context, batches ...int) (losses []float64, err error) {
	var sequence step.Sequence
	if r.data != nil {
		if sequence, err = build.OpenSequence(r.cfg, r.data.Validation, r.Compiled.Batch()); err != nil {
			return nil, err
		}
	}
	sequence.Progress = func(done, all int64) { r.log.Info("evaluating", "batches", done, "of", all) }
	means, err := step.Evaluate(ctx, r.Compiled, r.state, sequence, batches...)
	return lists.Map(means, func(m step.Mean) float64 { return m.Loss }), err
}

func (r *run) perplexity(loss float64) *metrics.Number {
	if !r.cfg.Model.Language() {
		return nil
	}
	return metrics.Some(math.Exp(loss))
}

func (r *run) summary() *metrics.Summary {
	c := r.cfg
	name := c.Method.Name
	if name == cage.NameCAGE && c.Method.CAGE.Form == cage.Off {
		name = cage.NameOff
	}
	settings := r.method.Own()
	if r.pull != nil {
		settings["lambda"] = r.method.CAGE.Lambda
		if r.method.CAGE.Strength == nil {
			settings["strength"] = r.pull.Strength
		}
	}
	return &metrics.Summary{
		Name: filepath.Base(c.Train.Out), Dir: c.Train.Out,
		Method: name, Settings: settings, Counts: r.done.Counts,
		Parameters:   int64(architecture.CountParams(r.model.Params(), nil)),
		NonEmbedding: int64(architecture.NonEmbedding(r.model.Params())),
		Steps:        r.done.Step, TotalSteps: c.Train.Steps,
		Tokens: r.done.Tokens, Seconds: metrics.Number(r.done.Seconds),
		Skipped: r.done.Skipped, Uncorrected: r.done.Uncorrected,
		ProcessorSeconds: metrics.Number(r.done.ProcessorSeconds),
		PeakMemory:       metrics.Number(resources.PeakMemory()),
	}
}

func (r *run) summarize(ctx context.Context, completed bool) (*metrics.Summary, error) {
	last := r.display.latest
	s := r.summary()
	batches := int64(r.done.Step) * int64(r.cfg.Train.Accumulate)
	for i, n := range r.data.MixtureEpochs(batches) {
		s.Sources = append(s.Sources, metrics.Epochs{Path: r.cfg.Data.Mixture[i].Path, Epochs: n})
	}
	s.Completed, s.ErrorNorm2, s.ErrorRel = completed, last.ErrorNorm2, last.ErrorRel
	if r.done.Seconds > 0 && r.done.Tokens > 0 {
		s.TokensPerSecond = metrics.Some(float64(r.done.Tokens) / r.done.Seconds)
	}
	if last.Step > 0 {
		s.TrainLoss = &last.Loss
	}
	var err error
	if s.Distance, err = r.distance(); err != nil {
		return nil, err
	}
	if !completed {
		s.Stopped = metrics.Interrupted
		return s, nil
	}
	// The last point of the evaluation curve uses as many batches as the earlier points. The summary
	// has the loss over the batches of the final evaluation.
	curve := r.cfg.Train.EvalBatches
	if r.cfg.Train.EvalEvery == 0 {
		curve = r.cfg.Train.FinalEvalBatches // there are no earlier points
	}
	losses, err := r.evaluate(ctx, r.cfg.Train.FinalEvalBatches, curve)
	if ctx.Err() != nil {
		s.Completed, s.Stopped = false, metrics.Interrupted // a resumed run evaluates
		return s, ErrInterrupted
	}
	if err != nil {
		return nil, err
	}
	s.ValLoss, s.ValPPL = metrics.Some(losses[0]), r.perplexity(losses[0])
	if r.follows() {
		return s, nil
	}
	rec := r.newRecord(last, last.LR, 0)
	rec.Lambda, rec.Strength = last.Lambda, last.Strength
	rec.ValLoss, rec.ValPPL = metrics.Some(losses[1]), r.perplexity(losses[1])
	rec.Distance = s.Distance
	r.display.console.Update(rec)
	if r.evaluated == r.done.Step {
		return s, nil // a finished run was resumed, and has this record already
	}
	if written, err := r.sample(ctx); err != nil {
		return nil, err
	} else if !written {
		s.Completed, s.Stopped = false, metrics.Interrupted
		return s, ErrInterrupted
	}
	return s, r.records.write(rec)
}

// addTensors adds the per-tensor measures, which every step computes.
func (r *run) addTensors(rec *metrics.Record, set step.Settings, res step.Result) {
	if rec.Weights == nil {
		rec.Weights = map[string]metrics.WeightMeasures{}
	}
	quantized := 0
	for i, t := range r.Programs.Tensors {
		w := rec.Weights[t.Name]
		if i < len(res.GradNorms) {
			w.GradNorm = metrics.Some(res.GradNorms[i])
		}
		w.LR = metrics.Some(set.Rate * t.RateFactor)
		if own, ok := res.Rates[t.Name]; ok {
			w.LR = metrics.Some(own)
		}
		if _, ok := r.Programs.Weights[t.Name]; ok {
			if quantized < len(res.ErrorNorm2) {
				w.ErrorRel = relative(res.ErrorNorm2[quantized], res.ValueNorm2[quantized])
			}
			quantized++
		}
		rec.Weights[t.Name] = w
	}
}

// reopen removes the outdated summary of a run that is resumed. The summary of a finished run is
// kept until another complete one replaces it.
func (r *run) reopen() error {
	path := r.dir.Summary()
	s, err := metrics.ReadSummary(path)
	if r.done.Step >= r.cfg.Train.Steps {
		r.summarized = err == nil && s.Completed
		return nil
	}
	_, unread := errors.AsType[syscall.Errno](err)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case unread:
	case err != nil || s.TotalSteps == 0: // damaged, or not a summary
		var aside vfs.Path
		name := func(n int) string { return fmt.Sprintf("%s.damaged-%d", path.Base(), n) }
		if aside, err = r.dir.Unused(name); err == nil {
			err = path.Rename(aside)
		}
		if err == nil {
			r.log.Warn("a damaged summary was renamed", "path", aside)
		}
	default:
		err = path.Remove()
	}
	if err == nil {
		err = r.dir.SyncDir()
	}
	if err != nil {
		return fmt.Errorf("removing the earlier summary of the run: %w", err)
	}
	return nil
}

func (r *run) recordError(err error) {
	if errors.Is(err, ErrReplaced) || r.checkDirectory() != nil {
		return // the directory belongs to another run
	}
	if r.summarized {
		return
	}
	s := r.summary()
	s.Stopped, s.Error = metrics.Failed, err.Error()
	if errors.Is(err, ErrNotFinite) {
		s.Stopped = metrics.Diverged
	}
	if err := metrics.WriteSummary(r.dir.Summary(), *s); err != nil {
		r.log.Warn("the summary could not be written", "error", err)
	}
}

type display struct {
	console  *console.Run
	latest   metrics.Record // of the last step
	previous metrics.Record // of the step at which speed was last measured
}

// NewConsole returns the progress display of a run: a live line if out is a terminal, otherwise one
// line per logged record. It can be passed as Options.Console, and log messages can be written
// through it.
func NewConsole(out io.Writer, cfg *config.Config) *console.Run {
	return console.NewRun(out, console.RunOptions{
		Total: cfg.Train.Steps, Every: max(1, cfg.Train.LogEvery),
		Problem: !cfg.Model.Language(), Width: console.Width(out)})
}

func (d *display) step(r metrics.Record) {
	if r.ErrorNorm2 == nil {
		r.ErrorNorm2, r.ErrorRel = d.latest.ErrorNorm2, d.latest.ErrorRel
	}
	d.latest = r
	d.console.Update(r)
}
