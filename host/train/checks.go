package train

import (
	"fmt"
	"maps"
	"slices"

	"github.com/cage-qat/cage/host/cage"
	"github.com/cage-qat/cage/host/train/build"
	"github.com/cage-qat/cage/host/train/config"
	"github.com/cage-qat/cage/internal/plaintoml"
)

func withoutEffect(cfg *config.Config, programs *build.Programs) (messages []string) {
	idle := func(setting, reason string) { messages = append(messages, setting+" has no effect: "+reason) }
	for _, key := range cfg.Schedule.Idle() {
		idle(key, fmt.Sprintf("schedule.kind is %q", cfg.Schedule.Kind))
	}
	for _, key := range cfg.Train.IdleAverage() {
		idle(key, fmt.Sprintf("train.average is %q", cfg.Train.Average))
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
	m := cfg.Method.CAGE
	if m.Form == cage.Coupled && m.Variant != cage.Default.Variant {
		idle(fmt.Sprintf("method.variant = %q", m.Variant), fmt.Sprintf("method.form is %q", m.Form))
	}
	if cfg.Method.Name == cage.NameOsciReset {
		acts := false
		for t := 1; t <= cfg.Train.Steps && !acts; t++ {
			acts = cfg.Method.OsciReset.Resets(cage.At{Step: t, Steps: cfg.Train.Steps})
		}
		if !acts {
			idle(fmt.Sprintf("method.name = %q", cfg.Method.Name), fmt.Sprintf("the run of %d steps ends before %s first acts", cfg.Train.Steps, cfg.Method.Title()))
		}
	}
	weights, activations := len(programs.Weights), len(programs.Activations)
	if weights == 0 {
		const reason = "no weight is quantized"
		if cfg.Method.Name == cage.NameCAGE && m.Form != cage.Off {
			idle(fmt.Sprintf("method.form = %q", m.Form), reason)
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
		idle("["+rest+"]", "nothing is left to it")
	}
	refreshes := map[string]bool{} // by the table of an optimizer with refresh_delay: whether it has refreshes
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

// The scheduled rate also multiplies the correction and the weight decay. An optimizer whose
// directions include their own step size runs with a rate of about 1, at which both are hundreds of
// times too strong. Ordinary runs stay far below these bounds: at a rate of 3e-3, λ = 2 and a decay
// of 0.1 they reach 0.006 and 0.0003.
const (
	maxCorrection = 0.125 // largest share of the residual that one step subtracts
	maxDecay      = 0.02  // largest share of a weight that one step subtracts
)

// tooStrong returns a warning if the correction, and one if the weight decay, is too strong in a
// single step. It ignores optimizers that compute their own learning rates, which it does not know.
func (r *run) tooStrong(rules []cage.Rule) (messages []string) {
	m := r.cfg.Method.CAGE
	rate, pull := 0.0, 0.0 // largest α_t and α_t·λ_t
	const looked = 10_000  // maximum number of sampled steps: both change slowly
	for t, steps := 1, r.cfg.Train.Steps; t <= steps; t += max(1, steps/looked) {
		rate = max(rate, r.rates.Rate(t-1))
		pull = max(pull, r.rates.Rate(t-1)*m.Strength(t, steps))
	}
	correction, decay := 0.0, 0.0
	for _, rule := range rules {
		if rule.Optimizer.Rate != nil {
			continue
		}
		factor := rule.RateFactor
		if rule.Quantizer != nil && m.Form == cage.Decoupled {
			correction = max(correction, factor*pull)
		}
		decay = max(decay, factor*rate*rule.Decay)
	}
	const hint = "an optimizer with a step size of its own wants schedule.rate near 1: then multiply %s by that step size, about 1e-3"
	if correction > maxCorrection {
		messages = append(messages, fmt.Sprintf("rate × λ reaches %.3g: a step of the correction takes that share of x − Q(x); "+hint, correction, "method.lambda"))
	}
	if decay > maxDecay {
		messages = append(messages, fmt.Sprintf("rate × weight decay reaches %.3g: weights lose that share in a step; "+hint, decay, "train.weight_decay"))
	}
	return messages
}

// A run can be extended, that is resumed with a larger train.steps, if the steps that are done stay
// the same: the learning rate and the method's strength and mode follow schedules over all steps,
// and must have had the values that the longer run gives them. A constant rate allows that at any
// time, WSD before its decay.

// extendableKeys are the keys that may change together with a larger train.steps, because the
// values that they give each step are compared instead. For conversations, data.epochs is one: an
// epoch does not depend on the number of epochs after it.
var extendableKeys = []string{
	"train.steps", "schedule.kind", "schedule.warmup", "schedule.floor", "schedule.decay",
	"schedule.decay_shape", "method.silence", "method.ramp", "train.average_from",
	"method.reset_start", "method.anneal_start", "method.anneal_end", "data.epochs",
}

func (r *run) extends(previous *config.Config) bool { return r.cfg.Train.Steps > previous.Train.Steps }

// checkExtension fails if a step that is done would have been different in the longer run.
func (r *run) checkExtension(previous *config.Config) error {
	if !r.extends(previous) {
		return nil
	}
	before := previous.Schedule.Schedule(previous.Train.Steps)
	total, longer := previous.Train.Steps, r.cfg.Train.Steps
	a, b := previous.Train.Averaging(), r.cfg.Train.Averaging()
	if a != nil && a.From != b.From && min(a.From, b.From) < r.done.Step {
		e := r.cfg.ErrorAt("train.average_from", "%s cannot be extended from %d to %d steps, of which %d "+
			"are done: the average began at step %d, and would have begun at step %d",
			r.cfg.Train.Out, total, longer, r.done.Step, a.From, b.From)
		e.Hint = fmt.Sprintf("give train.average_from = %d", a.From) + r.instead("; or ")
		return e
	}
	was, is := previous.Method.Method(), r.cfg.Method.Method()
	official := is.Reads(cage.Rule{}).NextRate
	const fractions = "give the keys of [method] that are fractions of the run so that the steps that are done stay as they were"
	for t := 1; t <= r.done.Step; t++ {
		// The official variant of the correction also uses the rate of the next step.
		for _, k := range []int{t - 1, t} {
			if a, b := before.Rate(k), r.rates.Rate(k); a != b && (k < t || official) {
				return r.notExtended(total, "schedule", "the learning rate", k+1, a, b,
					"a run that is to be extended needs the kind \"constant\", at any time, or \"wsd\", with the warm-up in steps, before its decay")
			}
		}
		before, now := was.Strength(t, total), is.Strength(t, longer)
		switch a, b := was.Mode(cage.At{Step: t, Steps: total, Strength: before}), is.Mode(cage.At{Step: t, Steps: longer, Strength: now}); {
		case !sameStrength(before, now) && r.cfg.Method.Name == cage.NameCAGE:
			return r.notExtended(total, "method.silence", "λ", t, before, now,
				"give method.silence so that the correction begins at the same step; a run on its ramp cannot be extended")
		case !sameStrength(before, now):
			return r.notExtended(total, "method.name", "the strength of the method", t, before, now, fractions)
		case a != b:
			return r.notExtended(total, "method.name", "the mode of the method", t, a, b, fractions)
		}
	}
	return nil
}

// sameStrength reports whether two strengths are equal in float32, in which a step uses them. In
// float64 they may differ: a fraction of the run that was divided by three, to stay the same number
// of steps, is not exactly a third.
func sameStrength(a, b float64) bool { return float32(a) == float32(b) }

func (r *run) notExtended(total int, key, what string, step int, was, is any, hint string) error {
	e := r.cfg.ErrorAt(key, "%s cannot be extended from %d to %d steps, of which %d are done: %s of step %d was %v, and would have been %v",
		r.cfg.Train.Out, total, r.cfg.Train.Steps, r.done.Step, what, step, was, is)
	e.Hint = hint + r.instead("; or ")
	return e
}
