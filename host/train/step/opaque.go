package step

import (
	"github.com/cage-qat/cage/host/cage"
	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/compute/update"
	"github.com/cage-qat/cage/sdk/program"
)

// Opaque computes the directions of some tensors outside of programs, in host memory of its own.
type Opaque interface {
	// Inputs returns the buffers into which x and the gradient of a tensor are copied before Step.
	Inputs(tensor string) (x, gradient []float32)
	// State returns the buffer into which a state tensor is copied before Step, and Next the buffer
	// of the state that Step computes.
	State(tensor, state string) []float32
	Next(tensor, state string) []float32
	// Direction returns the buffer of a tensor's direction, valid after Step.
	Direction(tensor string) []float32
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
	t update.Tensors, set Settings, scalars update.Scalars, loss float64,
) error {
	kind := updateKind{mode: c.mode(set), part: cage.FeedingOpaque}
	if _, err := c.runKind(t, kind, scalars); err != nil {
		return err
	}
	rules := c.plan.opaqueRules()
	for _, r := range rules {
		o := c.plan.Opaque[r.Name]
		x, g := o.Inputs(r.Name)
		for name, to := range map[string][]float32{
			program.KindOpaqueX.Of(r.Name): x, program.KindOpaqueGradient.Of(r.Name): g,
		} {
			if err := copyTo(to, t[name]); err != nil {
				return err
			}
			t[name].Finalize()
			delete(t, name)
		}
		for _, st := range r.Optimizer.State {
			state := t[program.KindState.PartOf(r.Name, st.Name)]
			if err := copyTo(o.State(r.Name, st.Name), state); err != nil {
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

func copyTo(to []float32, from *engine.Buffer) error {
	data, err := engine.View[float32](from)
	copy(to, data)
	return err
}

func (c *Compiled) takeOpaque(t update.Tensors) error {
	take := func(name string, data []float32, dims []int) error {
		b, err := c.put(Tensor{Name: name, Dims: dims}, data)
		if err == nil {
			t[name].Finalize()
			t[name] = b
		}
		return err
	}
	for _, r := range c.plan.opaqueRules() {
		o := c.plan.Opaque[r.Name]
		if err := take(program.KindDirection.Of(r.Name), o.Direction(r.Name), r.Shape); err != nil {
			return err
		}
		for _, st := range r.Optimizer.State {
			name := program.KindState.PartOf(r.Name, st.Name)
			if err := take(name, o.Next(r.Name, st.Name), st.Shape); err != nil {
				return err
			}
		}
	}
	return nil
}
