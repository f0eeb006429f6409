package train

import (
	"fmt"
	"slices"
	"strings"

	"github.com/cage-qat/cage/host/cage"
	"github.com/cage-qat/cage/host/train/config"
)

// A run goes on with more steps than it was begun with where that changes nothing about
// the steps that are done: the learning rate, and the strength and the mode of the method, which
// follow schedules over all steps, must have had the values that they would have now. A constant rate
// allows it at any time, WSD before its decay.

// extendableKeys are the keys that may change together with a larger train.steps, because
// their values step by step are compared instead. Of conversations, an epoch is what it is
// however many follow it.
var extendableKeys = []string{
	"train.steps", "schedule.kind", "schedule.warmup", "schedule.floor", "schedule.decay",
	"schedule.decay_shape", "method.silence", "method.ramp", "train.average_from",
	"method.reset_start", "method.anneal_start", "method.anneal_end", "data.epochs",
}

func (r *run) extends(previous *config.Config) bool { return r.cfg.Train.Steps > previous.Train.Steps }

// checkExtension fails when a step that is done would have been another one in the longer
// run.
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
		// The official variant of the correction uses the rate of the next step, too.
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

// sameStrength reports whether strengths are the same to a step, which reads them in 32 bits. In 64 they may differ: where a fraction of
// the run has to be a third of what it was, to be the same number of steps, that is not the third exactly.
func sameStrength(a, b float64) bool { return float32(a) == float32(b) }

func (r *run) notExtended(total int, key, what string, step int, was, is any, hint string) error {
	e := r.cfg.ErrorAt(key, "%s cannot be extended from %d to %d steps, of which %d are done: %s of step %d was %v, and would have been %v",
		r.cfg.Train.Out, total, r.cfg.Train.Steps, r.done.Step, what, step, was, is)
	e.Hint = hint + r.instead("; or ")
	return e
}

// mayDiffer reports whether a key may have another value than in the run that is continued.
func (r *run) mayDiffer(key string, previous *config.Config) bool {
	moved := strings.HasPrefix(key, "data.mixture[") && strings.HasSuffix(key, "].path") // as data.train: the hash is compared
	return moved || slices.Contains(changeable, key) || strings.HasSuffix(key, ".sha256") || r.extends(previous) && slices.Contains(extendableKeys, key)
}
