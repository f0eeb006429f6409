package train

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/cage-qat/cage/host/cage"
	"github.com/cage-qat/cage/host/compute/passes"
	"github.com/cage-qat/cage/host/compute/stage"
	"github.com/cage-qat/cage/host/train/build"
	"github.com/cage-qat/cage/host/train/config"
	"github.com/cage-qat/cage/internal/plaintoml"
	"github.com/cage-qat/cage/sdk/spec"
)

// withoutEffect returns warnings about settings that have no effect in this run.
func withoutEffect(cfg *config.Config, programs *build.Programs) (messages []string) {
	idle := func(setting, reason string, args ...any) {
		messages = append(messages, setting+" has no effect: "+fmt.Sprintf(reason, args...))
	}
	for _, key := range cfg.Schedule.Idle() {
		idle(key, "schedule.kind is %q", cfg.Schedule.Kind)
	}
	for _, key := range cfg.Train.IdleAverage() {
		idle(key, "train.average is %q", cfg.Train.Average)
	}
	if cfg.Train.LossMean == config.MeanOfMicroBatches {
		setting := fmt.Sprintf("train.loss_mean = %q", cfg.Train.LossMean)
		switch {
		case !cfg.Data.Separate():
			idle(setting, "all micro-batches have as many targets, as documents are joined")
		case cfg.Train.Accumulate == 1:
			idle(setting, "a step has one micro-batch (train.accumulate)")
		}
	}
	method, m := fmt.Sprintf("method.name = %q", cfg.Method.Name), cfg.Method.CAGE
	if m.Form == cage.Coupled && m.Variant != cage.Default.Variant {
		idle(fmt.Sprintf("method.variant = %q", m.Variant), "method.form is %q", m.Form)
	}
	if name := cfg.Method.Name; name == cage.NameOsciReset || name == cage.NameWinQ {
		acts := cfg.Method.WinQ.Every <= cfg.Train.Steps && name == cage.NameWinQ
		for t := 1; t <= cfg.Train.Steps && !acts; t++ {
			acts = cfg.Method.OsciReset.Resets(cage.At{Step: t, Steps: cfg.Train.Steps})
		}
		if !acts {
			idle(method, "the run of %d steps ends before %s first acts",
				cfg.Train.Steps, cfg.Method.Title())
		}
	}
	weights, activations := len(programs.Weights), len(programs.Activations)
	if weights == 0 {
		const reason = "no weight is quantized"
		if cfg.Method.Name == cage.NameCAGE && m.Form != cage.Off {
			idle(fmt.Sprintf("method.form = %q", m.Form), reason)
		}
		if cfg.IsSet("method.strength") {
			idle("method.strength", reason)
		}
		if cfg.Method.ParetoEvery > 0 {
			idle("method.pareto_every", reason)
		}
		if cfg.Diagnostics.Every > 0 {
			idle("diagnostics.every", reason)
		}
	}
	if a := cfg.Quantizer.Activations; a != nil && a.Table != "quantizer" && activations == 0 {
		idle("["+a.Table+"]", "no activation of the model is quantized with it")
	}
	rest := cfg.Optimizer.Rest.Table
	used := slices.ContainsFunc(programs.Used, func(u build.Used) bool { return u.Table == rest })
	if cfg.Optimizer.RestGiven() && !used {
		idle("["+rest+"]", "[optimizer] accepts all tensors")
	}
	refreshes := map[string]bool{} // by table with a refresh_delay: whether its optimizer refreshes
	for _, t := range programs.Tensors {
		if t.RefreshDelay > 0 {
			refreshes[t.Table] = refreshes[t.Table] || t.Optimizer.Refresh != nil
		}
	}
	for _, table := range slices.Sorted(maps.Keys(refreshes)) {
		if !refreshes[table] {
			idle(plaintoml.JoinKey(table, "refresh_delay"), "the optimizer has no refreshes")
		}
	}
	return messages
}

// checkParameters fails if a parameter is not finite: then no step will be. Parameters of which
// other processes have parts are not checked, so that all processes decide alike.
func (r *run) checkParameters() error {
	for _, t := range r.Programs.Tensors {
		b := r.state.Param(t.Name)
		if t.Frozen || b.Elsewhere() {
			continue
		}
		values, err := stage.View(b)
		if err != nil {
			return err
		}
		if slices.ContainsFunc(values, func(x float32) bool { return x-x != 0 }) {
			return fmt.Errorf("parameter %s is %w since an update: the direction of the optimizer in [%s] "+
				"was not finite, or schedule.rate is too large", t.Name, ErrNotFinite, t.Table)
		}
	}
	return nil
}

// Strengths of the correction outside of this range are warned of: below, it moves weights by less
// than a twentieth of their quantization error; above, by more than 99 % of it. In short runs,
// which have a smaller strength by default, the lower end is smaller by the same factor.
const weakStrength, strongStrength = 0.05, 5

// correctionPull returns what the decoupled correction does in the run; nil if it does nothing, or
// if the rates are unknown. With λ given, it follows the rate of each weight's group: the pull is
// that of the highest.
func (r *run) correctionPull() *cage.Pull {
	m := r.method.CAGE
	if r.method.Name != cage.NameCAGE || m.Form != cage.Decoupled || len(r.Programs.Weights) == 0 ||
		r.choosesRates() {
		return nil
	}
	factor := 0.0
	for _, t := range r.correctedTensors() {
		factor = max(factor, t.RateFactor)
	}
	if m.Strength != nil && factor > 0 { // Σ α·λ uses the rates of the schedule
		factor = 1
	}
	r.pullRates = r.rates
	r.pullRates.Peak *= factor
	if p := m.Pull(r.pullRates); p.Strength > 0 {
		return &p
	}
	return nil
}

// correctedTensors lists the trained tensors that are quantized weights or factors of their
// adapters.
func (r *run) correctedTensors() []build.TrainedTensor {
	return slices.DeleteFunc(slices.Clone(r.Programs.Tensors), func(t build.TrainedTensor) bool {
		_, quantized := r.Programs.Weights[cmp.Or(t.FactorOf, t.Name)]
		return !quantized || t.Frozen
	})
}

// choosesRates reports whether the optimizer of a quantized weight chooses its learning rate.
func (r *run) choosesRates() bool {
	return slices.ContainsFunc(r.correctedTensors(), func(t build.TrainedTensor) bool {
		return t.Optimizer.Rate != nil
	})
}

// reportExport logs at the start of a fine-tuning whether exports can store its weights in few
// bits.
func (r *run) reportExport() {
	if r.cfg.Init == "" || len(r.Programs.Weights) == 0 {
		return
	}
	var grid spec.Grid
	for _, name := range slices.Sorted(maps.Keys(r.Programs.Weights)) {
		q := r.Programs.Weights[name].ForEvaluation()
		reason := ""
		switch grid = q.Grid; {
		case passes.EndingRotation(q.Program, spec.OutputValue) > 1:
			reason = "their quantizer rotates them"
		case q.Grid == (spec.Grid{}):
			reason = "their quantizer does not declare what its codes represent"
		default:
			continue
		}
		r.log.Warn("exports will store quantized weights as floats, because "+reason,
			"weight", name, "others", "docs/guide/export.md#choose-before-training")
		return
	}
	r.log.Info("exports can pack the weights: cage export FILE.toml --to gguf --check names the type",
		"codes", grid.Format, "levels", len(grid.Codes()))
}

// reportPull logs what the correction does to a weight.
func (r *run) reportPull() {
	m, p, log := r.method.CAGE, r.pull, r.log
	if r.method.Name != cage.NameCAGE || m.Form == cage.Off || len(r.Programs.Weights) == 0 {
		return
	}
	short := func(x float64) string { return fmt.Sprintf("%.3g", x) }
	switch {
	case m.Form == cage.Coupled:
		log.Info("the correction is part of the gradient: how far it moves a weight depends on the "+
			"optimizer", "lambda", m.Lambda)
		return
	case r.choosesRates():
		log.Info("the strength of the correction is unknown: the optimizer chooses its learning rate",
			"lambda", m.Lambda)
		return
	case p == nil:
		if m.Strength != nil && *m.Strength == 0 && !r.cfg.IsSet("method.strength") {
			log.Warn("the correction does nothing: the learning rate is 0 in all of its steps",
				"set", "a schedule.floor above 0, or a smaller method.silence")
		} else {
			log.Info("the correction does nothing: its strength is 0, or no quantized weight is trained")
		}
		return
	case r.cfg.Adapters.Rank > 0:
		log.Info("the correction reduces the quantization error only as far as the factors of "+
			"adapters can",
			"strength", short(p.Strength), "lambda", short(m.Lambda))
		return
	}
	if p.Largest <= 1 {
		removed := fmt.Sprintf("%.2g", 100*p.Removed)
		if p.Removed >= 0.1 {
			removed = fmt.Sprintf("%.0f", 100*p.Removed)
		}
		log.Info("the correction removes up to "+removed+" % of the quantization error of a "+
			"weight that nothing else moves",
			"strength", short(p.Strength), "lambda", short(m.Lambda))
	}
	usual := cage.DefaultStrength(r.cfg.Train.Steps)
	set := fmt.Sprintf("method.strength = %.2g", usual)
	switch {
	case p.Strength < weakStrength*usual/cage.DefaultStrength(0):
		log.Warn("the correction hardly moves weights", "strength", short(p.Strength), "set", set)
	case p.Largest > 1:
		log.Warn("a step of the correction moves weights past their quantized values",
			"largest α·λ", short(p.Largest),
			"strength", short(p.Strength), "lambda", short(m.Lambda), "set", set)
	case p.Strength > strongStrength:
		log.Warn("the correction moves weights to their quantized values before the run ends",
			"strength", short(p.Strength), "set", set)
	}
}

// A run can be extended, that is resumed with a larger train.steps, if the steps that are done stay
// the same: the rate and the method's coefficient and mode follow schedules over all steps,
// and must have had the values that the longer run gives them. A constant rate allows that at any
// time, WSD before its decay.

// extendableKeys are the keys that may change together with a larger train.steps, because the
// values that they give each step are compared instead. For conversations, data.epochs is one: an
// epoch does not depend on the number of epochs after it.
var extendableKeys = []string{
	"train.steps", "schedule.kind", "schedule.warmup", "schedule.floor", "schedule.decay",
	"schedule.decay_shape", "method.silence", "method.ramp", "method.strength", "method.lambda",
	"train.average_from",
	"method.reset_start", "method.anneal_start", "method.anneal_end", "data.epochs",
}

func (r *run) extends(previous *config.Config) bool {
	return r.cfg.Train.Steps > previous.Train.Steps
}

// checkExtension fails if a step that is done would have been different in the longer run.
func (r *run) checkExtension(previous *config.Config) error {
	if !r.extends(previous) {
		return nil
	}
	total, longer := previous.Train.Steps, r.cfg.Train.Steps
	refuse := func(key, hint, reason string, args ...any) error {
		return r.cfg.ErrorAt(key, "%s cannot be extended from %d to %d steps, of which %d are done: %s",
			r.cfg.Train.Out, total, longer, r.done.Step, fmt.Sprintf(reason, args...)).
			WithHint(hint + r.instead("; or "))
	}
	a, b := previous.Train.Averaging(), r.cfg.Train.Averaging()
	if a != nil && a.From != b.From && min(a.From, b.From) < r.done.Step {
		return refuse("train.average_from", fmt.Sprintf("give train.average_from = %d", a.From),
			"the average began at step %d, and would have begun at step %d", a.From, b.From)
	}
	for _, t := range r.Programs.Tensors {
		// An opaque optimizer is told the number of steps in every update.
		if r.done.Step > 0 && (t.Optimizer.Opaque || t.Optimizer.HasInput(spec.InputSteps)) {
			return refuse(plaintoml.JoinKey(t.Table, "plugin"), "use another optimizer",
				"the optimizer's updates depend on the number of steps")
		}
	}
	if r.done.Step > 0 && (r.Programs.QuantizersTake(spec.InputSteps) || r.Programs.Searches()) {
		return refuse("quantizer", "use another quantizer",
			"a quantizer's results depend on the number of steps")
	}
	rates := previous.Schedule.Schedule(total)
	was, is := previous.ResolvedMethod().Method(), r.method.Method()
	rateSteps := r.done.Step
	if rateSteps > 0 && is.Reads(cage.Rule{}).NextRate { // the official variant of the correction
		rateSteps++
	}
	for t := 1; t <= rateSteps; t++ {
		if a, b := rates.Rate(t-1), r.rates.Rate(t-1); a != b {
			return refuse("schedule", "only schedules of the kind \"constant\" can be extended at any "+
				"time, and \"wsd\", with the warm-up in steps, before its decay",
				"the learning rate of step %d was %v, and would have been %v", t, a, b)
		}
	}
	const fractions = "change the keys of [method] that are fractions of the run so that the steps " +
		"that are done stay as they were"
	scaled := r.cfg.Method.Name == cage.NameCAGE &&
		(previous.Method.CAGE.Strength == nil) != (r.method.CAGE.Strength == nil) &&
		slices.ContainsFunc(r.correctedTensors(), func(t build.TrainedTensor) bool {
			return t.RateFactor != 0 && t.RateFactor != 1 || t.Optimizer.Rate != nil
		})
	for t := 1; t <= r.done.Step; t++ {
		a, b := was.Coefficient(t, total), is.Coefficient(t, longer)
		modeA := was.Mode(cage.At{Step: t, Steps: total, Coefficient: a})
		modeB := is.Mode(cage.At{Step: t, Steps: longer, Coefficient: b})
		// Steps use coefficients in float32. In float64 they may differ: a fraction of the run that was
		// divided by three is not exactly a third.
		switch different := float32(a) != float32(b); {
		case different && r.cfg.Method.Name == cage.NameCAGE:
			key, hint := "method.silence", "change method.silence so that the correction begins at "+
				"the same step; a run on its ramp cannot be extended"
			if a > 0 && b > 0 && r.method.CAGE.Ramp == cage.Constant {
				key, hint = "method.strength", fmt.Sprintf("give method.lambda = %v", a)
			}
			return refuse(key, hint, "λ of step %d was %v, and would have been %v", t, a, b)
		case scaled && a > 0:
			return refuse("method.strength", "change method.silence so that the correction has not begun",
				"with a strength, the correction of step %d has the rate of the schedule, and with λ that "+
					"of each group of the optimizer", t)
		case different:
			return refuse("method.name", fractions,
				"the coefficient of the method at step %d was %v, and would have been %v", t, a, b)
		case modeA != modeB:
			return refuse("method.name", fractions,
				"the mode of the method at step %d was %v, and would have been %v", t, modeA, modeB)
		}
	}
	return nil
}
