package step

import (
	"fmt"

	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/compute/update"
	"github.com/cage-qat/cage/host/method/cage"
)

// Opaque computes the directions of some tensors outside of all programs, in host memory of its own.
type Opaque interface {
	// Given returns where x and the gradient of a tensor are to be put before Step.
	Given(tensor string) (x, gradient []float32)
	// State returns the memory of a state tensor that Step will read, or that the last Step has
	// written. Step writes other memory and leaves this as it is.
	State(tensor, state string) []float32
	// Direction returns where the direction is after Step.
	Direction(tensor string) []float32
	// Step computes update step of steps, at the schedule's rate. After an error it can be called
	// again.
	Step(step, steps int, rate, loss float64) error
}

// hasOpaque reports whether some optimizer is no program. Its steps are chains.
func (p *Plan) hasOpaque() bool { return len(p.Opaque) > 0 }

// checkOpaque fails unless all opaque optimizers, and only these, are there.
func (p *Plan) checkOpaque() error {
	for _, r := range p.Rules {
		if _, ok := p.Opaque[r.Name]; ok != r.Optimizer.Opaque {
			return fmt.Errorf("step: the optimizer of %s is opaque: it works in trainings only, where its process is running", r.Name)
		}
	}
	return nil
}

// opaqueRules are the rules whose optimizers are opaque, in a form of the correction.
func (p *Plan) opaqueRules(form cage.Form) (list []cage.Rule) {
	for _, r := range p.rules(updateKind{form: form}) {
		if r.Optimizer.Opaque {
			list = append(list, r)
		}
	}
	return list
}

// givens compiles what opaque optimizers are given; nil if there are none. On the CPU it is written into their
// memory at once, where tiles do it.
func (c *Compiled) givens(form cage.Form) (*update.Update, error) {
	if u, ok := c.given[form]; ok || !c.plan.hasOpaque() {
		return u, nil
	}
	rules := c.plan.opaqueRules(form)
	jobs, err := update.Givens(rules)
	if err != nil {
		return nil, err
	}
	memory := map[string][]float32{}
	for _, r := range rules {
		memory[update.GivenX(r.Name)], memory[update.GivenGradient(r.Name)] = c.plan.Opaque[r.Name].Given(r.Name)
	}
	o := update.Options{Stacking: c.plan.Stacking, Executors: c.plan.Executors, Memory: func(tensor string) []float32 { return memory[tensor] }}
	u, err := update.Compile(c.dev, fmt.Sprintf("given (%s)", form), jobs, o)
	if err == nil {
		c.given[form] = u
	}
	return u, err
}

// runOpaque lets opaque optimizers compute their directions. It changes nothing in t.
func (c *Compiled) runOpaque(t update.Tensors, set Settings, scalars update.Scalars, loss float64) error {
	u, err := c.givens(c.form(set))
	if u == nil || err != nil {
		return err
	}
	if _, err := u.Run(t, scalars); err != nil {
		return err
	}
	rules := c.plan.opaqueRules(c.form(set))
	for _, r := range rules {
		o := c.plan.Opaque[r.Name]
		x, g := o.Given(r.Name)
		for name, to := range map[string][]float32{update.GivenX(r.Name): x, update.GivenGradient(r.Name): g} {
			if err := copyTo(to, t[name]); err != nil {
				return err
			}
			t[name].Finalize()
			delete(t, name)
		}
		for _, st := range r.Optimizer.State {
			if err := copyTo(o.State(r.Name, st.Name), t[update.State(r.Name, st.Name)]); err != nil {
				return err
			}
		}
	}
	done := map[Opaque]bool{}
	for _, r := range rules {
		if o := c.plan.Opaque[r.Name]; !done[o] {
			done[o] = true
			if err := o.Step(set.Step, set.Steps, set.Rate, loss); err != nil {
				return err
			}
		}
	}
	return nil
}

// copyTo copies a tensor, unless it is in that memory already.
func copyTo(to []float32, from *engine.Buffer) error {
	data, err := engine.View[float32](from)
	if err == nil && &data[0] != &to[0] {
		copy(to, data)
	}
	return err
}

// takeOpaque puts directions and next states into t.
func (c *Compiled) takeOpaque(t update.Tensors) error {
	take := func(name string, data []float32, dims []int) error {
		b, err := c.lendOrUpload(data, dims)
		if err == nil {
			t[name].Finalize()
			t[name] = b
		}
		return err
	}
	for _, r := range c.plan.opaqueRules(cage.Off) {
		o := c.plan.Opaque[r.Name]
		if err := take(update.Direction(r.Name), o.Direction(r.Name), r.Shape); err != nil {
			return err
		}
		for _, st := range r.Optimizer.State {
			if err := take(update.State(r.Name, st.Name), o.State(r.Name, st.Name), st.Shape); err != nil {
				return err
			}
		}
	}
	return nil
}

func (c *Compiled) lendOrUpload(data []float32, dims []int) (*engine.Buffer, error) {
	if c.dev.SharesMemory() {
		return engine.Lend(c.dev, data, dims...)
	}
	return engine.Upload(c.dev, data, dims...)
}
