package train

import (
	"fmt"

	"github.com/cage-qat/cage/host/method/cage"
)

// The rate of the schedule multiplies the correction and the weight decay, too. An
// optimizer whose directions carry a step size of their own is run with a rate of about
// 1, with which both are hundreds of times too strong. Ordinary runs stay far below
// these bounds: at a rate of 3e-3, λ = 2 and a decay of 0.1 they have 0.006 and 0.0003.
const (
	mostCorrection = 0.125 // of the residual, in one step
	mostDecay      = 0.02  // of a weight, in one step
)

// tooStrong returns warnings of a correction or a weight decay that is too strong in a
// single step; none when both are moderate.
func (r *run) tooStrong(rules []cage.Rule) (messages []string) {
	method := r.cfg.Method
	rate, pull := 0.0, 0.0 // largest α_t and α_t·λ_t
	const looked = 10_000  // steps at most: both change slowly
	for t, steps := 1, r.cfg.Train.Steps; t <= steps; t += max(1, steps/looked) {
		rate = max(rate, r.rates.Rate(t-1))
		pull = max(pull, r.rates.Rate(t-1)*method.LambdaAt(t, steps))
	}
	correction, decay := 0.0, 0.0
	for _, rule := range rules {
		factor := rule.RateFactor
		if rule.Quantizer != nil && method.Form == cage.Decoupled {
			correction = max(correction, factor*pull)
		}
		decay = max(decay, factor*rate*rule.Decay)
	}
	const hint = "an optimizer with a step size of its own wants schedule.rate near 1: then multiply %s by that step size, about 1e-3"
	if correction > mostCorrection {
		messages = append(messages, fmt.Sprintf("rate × λ reaches %.3g: a step of the correction takes that share of x − Q(x); "+hint, correction, "method.lambda"))
	}
	if decay > mostDecay {
		messages = append(messages, fmt.Sprintf("rate × weight decay reaches %.3g: weights lose that share in a step; "+hint, decay, "train.weight_decay"))
	}
	return messages
}
