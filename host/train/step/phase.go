package step

import (
	"fmt"
	"slices"

	"github.com/cage-qat/cage/host/cage"
	"github.com/cage-qat/cage/host/compute/lower"
	"github.com/cage-qat/cage/host/compute/update"
	"github.com/cage-qat/cage/sdk/program"
)

// A phase is a range of steps with the same quantizers. Each phase has its own compiled plan; the
// state is passed from one to the next. Parameters and their optimizers' states are kept. Trained
// parameters and states of quantizers are kept if some site that has them keeps its quantizer, and
// are reinitialized otherwise: a step size that was learned for 8 bits is useless for 4 bits.

// Enter converts the state from the phase before to this phase, on the same device. stays reports
// whether the quantizer of a weight or site is the same in both. Tensors that are reinitialized are
// computed from the weights and the first micro-batch, as by [Compiled.NewState], together with the
// optimizers' states of new trained parameters. After an error the state is unchanged.
func (c *Compiled) Enter(s *State, before *Compiled, stays func(site string) bool, batches *Batches) error {
	kept := c.plan.carriedFrom(&before.plan, stays)
	next := update.Tensors{}
	for name, b := range s.Tensors {
		if kept[name] {
			next[name] = b
		}
	}
	var err error
	if len(missing(next, c.plan.Trained(), program.KindParam.Of))+len(missing(next, c.plan.quantizerStates(), asNamed)) > 0 {
		rules := slices.DeleteFunc(slices.Clone(c.plan.Rules), func(r cage.Rule) bool { return kept[program.KindParam.Of(r.Name)] })
		err = c.initQuantizers(next, batches.host[0], nil)
		if err == nil {
			err = c.initOptimizers(next, rules)
		}
	}
	if err != nil {
		for name, b := range next {
			if !kept[name] {
				b.Finalize()
			}
		}
		return fmt.Errorf("step: the state of other quantizers: %w", err)
	}
	s.replace()
	for name, b := range s.Tensors {
		if next[name] != b {
			b.Finalize()
		}
	}
	s.Tensors, s.inconsistent = next, false
	return nil
}

// carriedFrom returns the names of the state tensors that are kept when this plan follows before:
// the model's parameters, the parameters and states of quantizers that stay the same, and the
// optimizers' states of all these.
func (p *Plan) carriedFrom(before *Plan, stays func(site string) bool) map[string]bool {
	kept := map[string]bool{}
	for _, t := range p.params() {
		kept[program.KindParam.Of(t.Name)] = true
	}
	had := map[string]bool{}
	for _, t := range before.stateTensors() {
		had[t.Name] = true
	}
	for _, list := range []map[string]lower.Quantizer{p.Weights, p.Activations} {
		for site, q := range list {
			for _, t := range parametersOf(q, site) {
				if name := program.KindParam.Of(t.Name); stays(site) && had[name] {
					kept[name] = true
				}
			}
			for _, t := range statesOf(q, site) {
				if stays(site) && had[t.Name] {
					kept[t.Name] = true
				}
			}
		}
	}
	for _, r := range p.Rules {
		for _, st := range r.State() {
			if kept[program.KindParam.Of(r.Name)] {
				kept[program.KindState.PartOf(r.Name, st.Name)] = true
			}
		}
	}
	return kept
}

func moveNew(t, from update.Tensors, list []Tensor, name func(string) string) {
	for _, l := range list {
		if name := name(l.Name); t[name] == nil && from[name] != nil {
			t[name] = from[name]
		}
	}
}

func missing(t update.Tensors, list []Tensor, name func(string) string) []Tensor {
	return slices.DeleteFunc(slices.Clone(list), func(l Tensor) bool { return t[name(l.Name)] != nil })
}

func without(list, others []Tensor) []Tensor {
	return slices.DeleteFunc(slices.Clone(list), func(l Tensor) bool {
		return slices.ContainsFunc(others, func(o Tensor) bool { return o.Name == l.Name })
	})
}
