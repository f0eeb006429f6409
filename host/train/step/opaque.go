package step

import (
	"fmt"

	"github.com/cage-qat/cage/host/cage"
	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/compute/stage"
	"github.com/cage-qat/cage/sdk/program"
)

// External computes tensors outside of programs, in host memory of its own.
type External interface {
	// Buffers returns the buffers of a parameter or weight: those to be filled before a call that
	// computes, and those that hold its results. Both are named as the tensors in a step.
	Buffers(owner string) (in, out map[string][]float32)
}

// Opaque computes the directions and states of some tensors.
type Opaque interface {
	External
	// Step computes the directions of update number step; steps is the length of the run, and rate
	// the scheduled learning rate. After an error it can be called again.
	Step(step, steps int, rate, loss float64) error
}

func (p *Plan) opaqueRules() (list []cage.Rule) {
	for _, r := range p.Rules {
		if r.Optimizer.Opaque {
			list = append(list, r)
		}
	}
	return list
}

// runOpaque makes opaque optimizers compute their directions. It leaves t unchanged.
func (c *Compiled) runOpaque(
	t stage.Tensors, set Settings, scalars stage.Scalars, loss float64,
) error {
	kind := updateKind{mode: c.mode(set), part: cage.FeedingOpaque}
	if _, err := c.runKind(t, kind, scalars); err != nil {
		return err
	}
	rules := c.plan.opaqueRules()
	for _, r := range rules {
		if err := give(c.plan.Opaque[r.Name], r.Name, t); err != nil {
			return err
		}
		for _, kind := range []program.Kind{program.KindOpaqueX, program.KindGivenGradient} {
			t[kind.Of(r.Name)].Finalize()
			delete(t, kind.Of(r.Name))
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

// give copies the tensors of t that e reads for an owner.
func give(e External, owner string, t stage.Tensors) error {
	in, _ := e.Buffers(owner)
	for name, to := range in {
		data, err := engine.View[float32](t[name])
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		copy(to, data)
	}
	return nil
}

func (c *Compiled) takeOpaque(t stage.Tensors) error {
	for _, r := range c.plan.opaqueRules() {
		_, out := c.plan.Opaque[r.Name].Buffers(r.Name)
		list := []Tensor{{Name: program.KindDirection.Of(r.Name), Dims: r.Shape}}
		for _, st := range r.Optimizer.State {
			list = append(list, Tensor{Name: program.KindState.PartOf(r.Name, st.Name), Dims: st.Shape})
		}
		for _, tensor := range list {
			b, err := c.put(tensor, out[tensor.Name])
			if err != nil {
				return err
			}
			t[tensor.Name].Finalize()
			t[tensor.Name] = b
		}
	}
	return nil
}
