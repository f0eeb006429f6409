package train

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/cage-qat/cage/host/cage"
	"github.com/cage-qat/cage/host/train/build"
	"github.com/cage-qat/cage/host/train/console"
	"github.com/cage-qat/cage/host/train/metrics"
	"github.com/cage-qat/cage/host/train/step"
	"github.com/cage-qat/cage/internal/resources"
)

func (r *run) train(ctx context.Context) (*metrics.Summary, error) {
	live, given := r.opts.Console.(*console.Run)
	if given {
		live.SetTotal(r.cfg.Train.Steps) // which may depend on the data
	} else {
		live = NewConsole(r.opts.Console, r.cfg)
	}
	r.display = display{console: live, latest: r.last}
	start := time.Since(r.began).Seconds()
	for _, message := range withoutEffect(r.cfg, r.Programs) {
		r.log.Warn(message)
	}
	r.pull = r.correctionPull()
	if !r.follows() { // process 0 reports for all
		r.reportPull()
		r.reportExport()
	}
	if a := r.cfg.Train.Averaging(); a != nil {
		r.log.Info("validation losses, samples and exports use averaged weights",
			"train.average", r.cfg.Train.Average, "from step", a.From)
	}
	defer r.display.console.Close()
	r.display.previous = metrics.Record{
		Step: r.done.Step, Tokens: r.done.Tokens, Seconds: metrics.Number(r.done.Seconds)}
	r.saving.at = time.Now()
	err := r.saveLast(r.steps(ctx))
	if err != nil && !errors.Is(err, ErrInterrupted) {
		return nil, err
	}
	summary, sumErr := r.summarize(ctx, err == nil)
	switch {
	case r.follows():
		return summary, errors.Join(err, r.ending(sumErr))
	case summary == nil:
		return nil, r.resumable(sumErr)
	}
	summary.StartSeconds = start
	summary.PluginSeconds = r.Programs.Took.Seconds()
	if gone := r.checkDirectory(); gone != nil {
		return nil, gone
	}
	// Records are synced first, so that they always cover the step of the summary.
	if err := r.syncRecords(); err != nil {
		return summary, r.resumable(err)
	}
	if r.summarized && !summary.Completed {
		return summary, errors.Join(err, sumErr)
	}
	if err := metrics.WriteSummary(r.dir.Summary(), *summary); err != nil {
		return summary, r.resumable(err)
	}
	return summary, errors.Join(err, sumErr)
}

func (r *run) steps(ctx context.Context) error {
	stop := r.cfg.Train.Steps
	if r.opts.StopAfter > 0 {
		stop = min(stop, r.opts.StopAfter)
	}
	ahead := startFeed(r.batches, r.cfg.Train.Accumulate, r.Compiled.Load, r.done.Step+1, stop)
	defer ahead.close()
	if err := r.search(ctx); err != nil { // the run may have been interrupted before it
		return stepError(r.done.Step, err)
	}
	if r.evaluates(r.done.Step) && r.evaluated < r.done.Step {
		// The run was interrupted before this evaluation was done.
		if err := r.validate(ctx, r.settings(r.done.Step)); err != nil {
			return stepError(r.done.Step, err)
		}
	}
	for r.done.Step < stop {
		if err := r.checkStop(ctx); err != nil {
			return err
		}
		if err := r.verification.Failed(); err != nil {
			return damagedData(err)
		}
		t := r.done.Step + 1
		if err := r.step(ctx, ahead); err != nil {
			return stepError(t, err)
		}
	}
	switch {
	case r.done.Step < r.cfg.Train.Steps:
		return ErrInterrupted
	case r.done.Skipped == r.done.Step:
		return fmt.Errorf("none of the %d steps changed a parameter: each was skipped because its loss "+
			"or gradient was %w: lower schedule.rate or look at the data", r.done.Step, ErrNotFinite)
	}
	return nil
}

func (r *run) step(ctx context.Context, ahead *feed) error {
	before := r.done
	began, worked := time.Now(), resources.ProcessorTime()
	next := <-ahead.deliveries
	if next.err != nil {
		return next.err
	}
	waited := time.Since(began)
	t := before.Step + 1
	if err := r.movement.read(t, r.state); err != nil {
		next.batches.Close()
		return err
	}
	set := r.settings(t)
	r.voteToStop(t)
	began = time.Now().Add(-waited)
	res, err := r.Compiled.Run(r.state, next.batches, set)
	if err != nil {
		return err
	}
	r.done.Step++
	if r.pull != nil && !res.Skipped {
		r.done.Strength += r.method.CAGE.PullOf(t, r.pullRates)
	}
	r.done.Tokens += next.targets
	r.done.Seconds += (time.Since(began) - res.Overhead).Seconds()
	r.done.ProcessorSeconds += (resources.ProcessorTime() - worked).Seconds()
	if len(res.FailedRefreshes) > 0 {
		r.log.Warn("preconditioners could not be refreshed and keep their old values",
			"step", r.done.Step, "tensors", res.FailedRefreshes)
	}
	r.countUncorrected(res)
	if res.Counts != nil {
		counts := map[string]int64{}
		maps.Copy(counts, r.done.Counts)
		for name, n := range res.Counts {
			counts[name] += int64(n)
		}
		r.done.Counts = counts
	}
	if res.Skipped {
		r.done.Skipped++
		r.log.Warn("skipping a step whose loss or gradient is not finite",
			"step", r.done.Step, "loss", res.Loss, "grad_norm", res.GradNorm)
		if err := r.checkParameters(); err != nil {
			r.done = before
			return err
		}
		skipped, c := r.done.Skipped, r.cfg.Train
		if c.NaNPolicy == "stop" || skipped > c.MaxSkipped {
			r.done = before // a resumed run repeats this step
			return fmt.Errorf("loss %v, gradient norm %v: %w (%d such steps; train.nan_policy = %q, "+
				"train.max_skipped = %d): lower schedule.rate or look at the data",
				res.Loss, res.GradNorm, ErrNotFinite, skipped, c.NaNPolicy, c.MaxSkipped)
		}
	}
	if err := r.report(set, res); err != nil {
		return err
	}
	if err := r.recordPoint(); err != nil {
		return err
	}
	if err := r.search(ctx); err != nil {
		return err
	}
	if r.evaluates(r.done.Step) {
		if err := r.validate(ctx, set); err != nil {
			return err
		}
	}
	return r.saveIfDue()
}

// search runs the quantizer searches that are due after the last step. A search that fails or is
// interrupted runs again when the run is resumed.
func (r *run) search(ctx context.Context) error {
	if !r.state.Unsearched {
		return nil
	}
	began := time.Now()
	err := r.Compiled.Search(ctx, r.state, r.done.Step-r.done.Skipped)
	r.done.Seconds += time.Since(began).Seconds()
	switch {
	case err != nil && ctx.Err() != nil:
		return ErrInterrupted
	case err != nil:
		return fmt.Errorf("quantizer search: %w", err)
	}
	return nil
}

func (r *run) evaluates(t int) bool {
	every := r.cfg.Train.EvalEvery
	return every > 0 && t > 0 && t%every == 0 && t < r.cfg.Train.Steps
}

// settings returns the settings of step t. Schedules count all steps; the optimizer does not count
// skipped ones.
func (r *run) settings(t int) step.Settings {
	set := step.Settings{
		Step: t - r.done.Skipped, Steps: r.cfg.Train.Steps,
		Rate: r.rates.Rate(t - 1), NextRate: r.rates.Rate(t),
		Lambda:     r.method.Method().Coefficient(t, r.cfg.Train.Steps),
		Statistics: r.logs(t), ParetoLambda: r.method.CAGE.Lambda,
	}
	if len(r.Programs.Weights) == 0 { // there is nothing to correct
		set.Lambda = 0
	}
	if r.measuresPareto(t) {
		// Training in full precision computes no gradient at Q(x).
		set.ParetoSTE, set.Pareto = r.cfg.Method.Gradient != cage.FullGradient, true
	}
	return set
}

func (r *run) logs(t int) bool {
	every := max(1, r.cfg.Train.LogEvery)
	return t == 1 || t%every == 0 || t == r.cfg.Train.Steps || r.measuresPareto(t) || r.movement.due(t)
}

// measuresPareto reports whether ‖P_λ‖ is measured at step t, which requires quantized weights.
func (r *run) measuresPareto(t int) bool {
	every := r.cfg.Method.ParetoEvery
	return every > 0 && t%every == 0 && len(r.Programs.Weights) > 0
}

// countUncorrected counts the weights that the step could not correct, and logs their names if they
// differ from those of the previous step.
func (r *run) countUncorrected(res step.Result) {
	r.done.Uncorrected += len(res.Uncorrected)
	if len(res.Uncorrected) > 0 && !slices.Equal(res.Uncorrected, r.uncorrected) {
		r.log.Warn("weights get no correction, because x − Q(x) is not finite: check their quantizer",
			"step", r.done.Step, "weights", res.Uncorrected)
	}
	r.uncorrected = res.Uncorrected
}

// feed loads the micro-batches of the next step while a step is computed. Which batches a step gets
// depends only on its number.
type feed struct {
	deliveries chan delivery // one per step, in order
	stop       chan struct{}
}

type delivery struct {
	batches *step.Batches
	targets int64 // number of targets in them
	err     error
}

func startFeed(source build.Batches, accumulate int, load func([][]int32) (*step.Batches, error),
	first, last int) *feed {
	f := &feed{make(chan delivery), make(chan struct{})}
	go func() {
		defer close(f.deliveries)
		for t := first; t <= last; t++ {
			select {
			case <-f.stop:
				return
			default:
			}
			var d delivery
			list := make([][]int32, accumulate)
			for i := range list {
				if d.err == nil {
					list[i] = make([]int32, source.Len)
					d.err = source.At(int64(t-1)*int64(accumulate)+int64(i), list[i])
				}
			}
			if d.err == nil {
				d.targets = source.Finish(list)
				d.batches, d.err = load(list)
			}
			f.deliveries <- d // to a step, or to close
			if d.err != nil {
				return
			}
		}
	}()
	return f
}

// close waits for the load in progress, and frees the batches that no step has taken.
func (f *feed) close() {
	close(f.stop)
	for d := range f.deliveries {
		if d.batches != nil {
			d.batches.Close()
		}
	}
}
