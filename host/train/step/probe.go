package step

import (
	"fmt"
	"slices"
	"strings"

	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/compute/update"
	"github.com/cage-qat/cage/host/method/cage"
	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/answer"
)

// Optimizers may take a second gradient at another point. Steps in which one is due run as the chain: the gradient at x, the
// other points, the gradient there with the same batch and noise, and the update. Only that gradient is kept of the second pass.

// dues is a set of the schedules by which probes are due, as a text by which it can be compared; empty means that none is.
type dues string

func dueText(d sdk.Due) string { return fmt.Sprint(d) + ";" }

func (s dues) has(d sdk.Due) bool { return s != "" && strings.Contains(string(s), dueText(d)) }

// probesDue returns the schedules by which a probe is due at update t.
func (p *Plan) probesDue(t int) (set dues) {
	for _, r := range p.Rules {
		if due, _ := r.Optimizer.ProbeDue.At(t); due && !set.has(r.Optimizer.ProbeDue) {
			set += dues(dueText(r.Optimizer.ProbeDue))
		}
	}
	return set
}

// probesEver reports whether a probe is due at any update.
func (p *Plan) probesEver() bool {
	return slices.ContainsFunc(p.Rules, func(r cage.Rule) bool { return r.Optimizer.ProbeDue.First > 0 })
}

// probePatterns lists the sets that are due at updates soon enough to be prepared for. Others are compiled when needed.
func (p *Plan) probePatterns() []dues {
	var list []dues
	for t := range 1000 {
		if set := p.probesDue(t + 1); !slices.Contains(list, set) {
			list = append(list, set)
		}
		if !p.probesEver() {
			break
		}
	}
	return list
}

// probe adds the gradients at the other points that are due to t. If one is not finite, the step is skipped.
func (c *Compiled) probe(s *State, t update.Tensors, batches *Batches, set Settings, scalars update.Scalars, res *Result) error {
	due := c.plan.probesDue(set.Step)
	u, err := c.update(updateKind{form: c.form(set), part: update.Probing, probes: due})
	if u == nil || err != nil {
		return err
	}
	if _, err := u.Run(t, scalars); err != nil {
		return err
	}
	at := update.Tensors{} // the state at the other points, and what is computed of it
	for name := range s.Tensors {
		at[name] = t[name]
	}
	for _, spec := range c.plan.stepSpecs() {
		at[spec.Name] = t[spec.Name]
	}
	for _, r := range c.plan.Rules {
		if b := t[update.Point(r.Name)]; b != nil {
			at[update.Param(r.Name)] = b
		}
	}
	defer func() {
		for _, r := range c.plan.Rules {
			delete(t, update.Point(r.Name)) // at has it
		}
		c.keepProbed(t, at, due)
	}()
	if !c.plan.FullPrecision {
		if err := c.runQuantize(at); err != nil {
			return err
		}
	}
	sums, err := c.runGradients(at, batches, set.Step, gradientKind{full: c.plan.FullPrecision})
	if err != nil {
		return err
	}
	var second Result
	c.plan.setLoss(sums, &second)
	err = c.runFinish(at, &second)
	res.Skipped = !second.checkFinite()
	return err
}

// keepProbed moves the gradients that updates read from at to t, and frees what else t does not have.
func (c *Compiled) keepProbed(t, at update.Tensors, due dues) {
	for _, r := range c.plan.Rules {
		name := update.Gradient(r.Name)
		if b := at[name]; b != nil && due.has(r.Optimizer.ProbeDue) && r.Optimizer.Update.Input(answer.InputProbed) >= 0 {
			t[update.Probed(r.Name)] = b
			delete(at, name)
		}
	}
	kept := map[*engine.Buffer]bool{}
	for _, b := range t {
		kept[b] = true
	}
	for _, b := range at {
		if !kept[b] {
			b.Finalize()
		}
	}
}
