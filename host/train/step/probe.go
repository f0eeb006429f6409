package step

import (
	"fmt"
	"math"
	"strings"

	"github.com/cage-qat/cage/host/cage"
	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/compute/stage"
	"github.com/cage-qat/cage/host/model"
	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/spec"
)

// Optimizers may use a second gradient, at another point or with labels drawn from the model. Steps
// in which one is due run as the chain: the gradient at x, the other points, the gradient there
// with the same batch and noise, the gradient with drawn labels, and the update. The additional
// passes produce only gradients.

// dues is the set of probe schedules that are due in a step, as a comparable string; it is empty if
// no probe is due.
type dues string

func dueText(d sdk.Due) string { return fmt.Sprint(d) + ";" }

func (s dues) has(d sdk.Due) bool { return s != "" && strings.Contains(string(s), dueText(d)) }

func (p *Plan) probesDue(t int) (set dues) {
	for _, r := range p.Rules {
		if due, _ := r.Optimizer.ProbeDue.At(t); due && !set.has(r.Optimizer.ProbeDue) {
			set += dues(dueText(r.Optimizer.ProbeDue))
		}
	}
	return set
}

func (p *Plan) probes(due dues, sampled bool) (list []cage.Rule) {
	for _, r := range p.Rules {
		if due.has(r.Optimizer.ProbeDue) && r.Optimizer.Sampled == sampled {
			list = append(list, r)
		}
	}
	return list
}

func (c *Compiled) probe(
	s *State, t stage.Tensors, batches *Batches, set Settings, scalars stage.Scalars, res *Result,
) error {
	due := c.plan.probesDue(set.Step)
	if rules := c.plan.probes(due, false); len(rules) > 0 {
		kind := updateKind{mode: c.mode(set), part: cage.Probing, probes: due}
		_, err := c.runKind(t, kind, scalars)
		if err == nil {
			err = c.secondGradients(s, t, batches, set, rules, false, res)
		}
		if err != nil || res.Skipped {
			return err
		}
	}
	rules := c.plan.probes(due, true)
	if len(rules) == 0 {
		return nil
	}
	labels := c.plan.Model.(model.Language).Labels(batches.host, c.plan.Context)
	scalars[cage.InputSampledFactor] = float32(math.Sqrt(labels))
	return c.secondGradients(s, t, batches, set, rules, true, res)
}

// secondGradients adds the second gradients of rules to t, at the probe points if t has them.
func (c *Compiled) secondGradients(
	s *State, t stage.Tensors, batches *Batches, set Settings,
	rules []cage.Rule, sampled bool, res *Result,
) error {
	at := stage.Tensors{} // the state at the probe points, and tensors computed from it
	for name := range s.Tensors {
		at[name] = t[name]
	}
	for _, spec := range c.plan.stepSpecs() {
		at[spec.Name] = t[spec.Name]
	}
	for _, r := range rules {
		if b := t[program.KindPoint.Of(r.Name)]; b != nil {
			at[program.KindParam.Of(r.Name)] = b
		}
	}
	defer func() { // gradients that updates read move to t; tensors that t lacks are freed
		for _, r := range rules {
			delete(t, program.KindPoint.Of(r.Name)) // at has it, too
			name := program.KindGradient.Of(r.Name)
			if b := at[name]; b != nil && r.Optimizer.Update.Input(spec.InputProbed) >= 0 {
				t[program.KindProbed.Of(r.Name)] = b
				delete(at, name)
			}
		}
		inStep := map[*engine.Buffer]bool{}
		for _, b := range t {
			inStep[b] = true
		}
		for _, b := range at {
			if !inStep[b] {
				b.Finalize()
			}
		}
	}()
	if !c.plan.FullPrecision {
		if err := c.runQuantize(&c.plan, at); err != nil {
			return err
		}
	}
	kind, second := gradientKind{full: c.plan.FullPrecision, sampled: sampled}, Result{}
	err := c.runGradients(at, batches, set.Step, kind, &second)
	if err == nil {
		err = c.runFinish(at, &second)
	}
	res.Skipped = !second.checkFinite()
	return err
}
