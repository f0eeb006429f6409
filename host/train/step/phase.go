package step

import (
	"fmt"
	"slices"

	"github.com/cage-qat/cage/host/cage"
	"github.com/cage-qat/cage/host/compute/lower"
	"github.com/cage-qat/cage/host/compute/update"
	"github.com/cage-qat/cage/sdk/program"
)

// Quantizers may be others in other ranges of steps, which are phases. Each phase has a plan of its
// own, compiled by itself; the state goes from one to the next. Parameters and their optimizers'
// states stay as they are. Trained parameters and states of quantizers go on where the quantizer of
// some site that has them stays the same, and begin anew elsewhere: a step size that was learned
// for 8 bits is useless to 4 bits.

// Enter changes the state that the steps of another phase have left to one for the steps of this
// phase, on the same device. stays reports whether the quantizer of a weight or site is the same in
// both. What begins anew is computed from the weights and from the first micro-batch, as
// [Compiled.NewState] does; optimizers' states of trained parameters that begin start with them.
// After an error the state is as it was.
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

// carriedFrom names the tensors of a state that stay as they are when a plan follows another one:
// the model's parameters, what the quantizers that stay the same have, and the optimizers' states
// of all these.
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
