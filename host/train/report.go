package train

import (
	"context"
	"math"
	"path/filepath"

	"github.com/cage-qat/cage/host/data"
	"github.com/cage-qat/cage/host/metrics"
	"github.com/cage-qat/cage/host/model"
	"github.com/cage-qat/cage/host/step"
)

// report records the step just done, if it is due, and shows it.
func (r *run) report(set step.Settings, res step.Result, sampled *sample) error {
	rec := metrics.Record{
		Step: r.done.Step, Loss: metrics.Number(res.Loss), LR: metrics.Number(set.Rate), Lambda: metrics.Number(set.Lambda),
		Tokens: r.done.Tokens, Seconds: metrics.Number(r.done.Seconds),
		GradNorm: metrics.Some(res.GradNorm), Skipped: r.done.Skipped, Uncorrected: r.done.Uncorrected,
	}
	addStatistics(&rec, set, res)
	if !r.logs(r.done.Step) {
		r.display.step(rec)
		return nil
	}
	if speed := r.display.speed(rec); r.cfg.Model.Language() {
		rec.TokensPerSecond = metrics.Some(speed)
	}
	var err error
	if rec.Distance, err = r.distance(); err != nil {
		return err
	}
	if err := r.movement.record(&rec, sampled); err != nil {
		return err
	}
	r.display.step(rec)
	return r.record(rec)
}

// addStatistics fills in the error statistics and stationarity measures that the
// step has computed.
func addStatistics(rec *metrics.Record, set step.Settings, res step.Result) {
	if set.Pareto && !res.Skipped {
		rec.ParetoSTE = metrics.Some(res.ParetoSTE)
	}
	if set.FullPareto && !res.Skipped {
		rec.Pareto = metrics.Some(res.Pareto)
	}
	if len(res.ErrorNorm2) == 0 {
		return
	}
	var e2, x2, norms float64
	applied := 0
	for i, v := range res.ErrorNorm2 {
		if math.IsNaN(v) || math.IsInf(v, 0) {
			continue
		}
		e2, x2, norms = e2+v, x2+res.ValueNorm2[i], norms+math.Sqrt(v)
		applied++
	}
	mean := norms / float64(max(1, applied))
	rec.ErrorNorm2, rec.ErrorRel = metrics.Some(e2), metrics.Some(e2/x2)
	rec.AvgErrNorm, rec.AvgCorrNorm = metrics.Some(mean), metrics.Some(set.Lambda*mean)
	if set.Lambda == 0 {
		applied = 0
	} else {
		applied = len(res.ErrorNorm2) - len(res.Uncorrected) // at the point where the correction takes its residual
	}
	rec.AppliedParams = &applied
}

// validate evaluates in the middle of training and records the result.
func (r *run) validate(ctx context.Context, set step.Settings) error {
	loss, err := r.evaluate(ctx, r.cfg.Train.EvalBatches)
	if ctx.Err() != nil {
		return nil // the loop notices and saves; the resumed run evaluates
	}
	if err != nil {
		return err
	}
	rec := metrics.Record{
		Step: r.done.Step, Loss: r.display.latest.Loss, LR: metrics.Number(set.Rate), Lambda: metrics.Number(set.Lambda),
		Tokens: r.done.Tokens, Seconds: metrics.Number(r.done.Seconds), Skipped: r.done.Skipped, Uncorrected: r.done.Uncorrected,
		ValLoss: metrics.Some(loss), ValPPL: r.perplexity(loss),
	}
	if rec.Distance, err = r.distance(); err != nil {
		return err
	}
	r.display.evaluated(rec)
	r.evaluated = r.done.Step
	return r.record(rec)
}

// evaluate returns the validation loss.
func (r *run) evaluate(ctx context.Context, batches int) (float64, error) {
	var file *data.File
	if r.data != nil {
		file = r.data.Validation
	}
	loss, _, err := Evaluate(ctx, r.kernels, r.state, file, batches)
	return loss, err
}

// perplexity is exp(loss) of a language model, nil of a problem.
func (r *run) perplexity(loss float64) *metrics.Number {
	if !r.cfg.Model.Language() {
		return nil
	}
	return metrics.Some(math.Exp(loss))
}

// summarize evaluates a completed run and gathers its results.
func (r *run) summarize(ctx context.Context, completed bool) (*Summary, error) {
	last := r.display.latest
	s := &Summary{Dir: r.cfg.Train.Out, Method: r.cfg.Method.Name, Form: r.cfg.Method.Form, Lambda: r.cfg.Method.Lambda, Silence: r.cfg.Method.Silence}
	s.Summary = metrics.Summary{
		Name: filepath.Base(r.cfg.Train.Out), Completed: completed, Steps: r.done.Step, TotalSteps: r.cfg.Train.Steps, Tokens: r.done.Tokens,
		Parameters: int64(model.CountParams(r.model.Params(), nil)), NonEmbedding: int64(model.NonEmbedding(r.model.Params())), Seconds: metrics.Number(r.done.Seconds), Skipped: r.done.Skipped, Uncorrected: r.done.Uncorrected,
		ErrorNorm2: last.ErrorNorm2, ErrorRel: last.ErrorRel,
	}
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
	loss, err := r.evaluate(ctx, r.cfg.Train.FinalEvalBatches)
	if ctx.Err() != nil {
		s.Completed, s.Stopped = false, metrics.Interrupted // a resumed run evaluates
		return s, ErrInterrupted
	}
	if err != nil {
		return nil, err
	}
	s.ValLoss, s.ValPPL = metrics.Some(loss), r.perplexity(loss)
	rec := metrics.Record{Step: r.done.Step, Loss: last.Loss, LR: last.LR, Lambda: last.Lambda, Tokens: r.done.Tokens,
		Seconds: metrics.Number(r.done.Seconds), Skipped: r.done.Skipped, Uncorrected: r.done.Uncorrected, ValLoss: s.ValLoss, ValPPL: s.ValPPL, Distance: s.Distance}
	r.display.evaluated(rec)
	if r.evaluated == r.done.Step {
		return s, nil // a finished run that was resumed: the record is there
	}
	return s, r.records.write(rec)
}
