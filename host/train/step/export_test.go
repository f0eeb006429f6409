package step

import (
	"maps"

	"github.com/cage-qat/cage/host/cage"
	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/compute/refresh"
	"github.com/cage-qat/cage/sdk/program"
)

// Stages returns the number of executables that are kept.
func Stages(c *Compiled) int { return len(c.stages) }

// QuantizeOutputs names the tensors that the quantize stage returns.
func (c *Compiled) QuantizeOutputs() (names []string, err error) {
	e, err := c.quantize(&c.plan)
	if err == nil {
		for _, s := range e.OutputSpecs() {
			names = append(names, s.Name)
		}
	}
	return names, err
}

// SetExecutor replaces the executor of refresh programs.
func (c *Compiled) SetExecutor(f refresh.Executor) { c.refresher.Execute = f }

// Install puts the refresh results into effect that are due before update t.
func (c *Compiled) Install(s *State, t int) error {
	_, err := c.refresher.Install(&s.Pending, s.Tensors, t)
	return err
}

// Programs returns the number of compiled programs, apart from single steps.
func (c *Compiled) Programs() int {
	n := len(c.stages)
	for _, u := range c.updates {
		if u != nil {
			n++
		}
	}
	return n
}

// ReadyUpdate quantizes the weights, uploads gradients in the order of the rules, and returns a
// function that runs the update of one step, and may be called once.
func (c *Compiled) ReadyUpdate(s *State, grads [][]float32, set Settings) (func() error, error) {
	t := maps.Clone(s.Tensors)
	if err := c.runQuantize(&c.plan, t); err != nil {
		return nil, err
	}
	for i, spec := range c.plan.tensors() {
		b, err := engine.Upload(c.dev, grads[i], spec.Dims...)
		if err != nil {
			return nil, err
		}
		t[program.KindGradient.Of(spec.Name)] = b
	}
	return func() error {
		defer keepState(s.Tensors, t)
		_, err := c.runKind(t,
			updateKind{mode: c.mode(set), part: cage.Updating, statistics: set.Statistics},
			c.scalars(set, 1, 0))
		return err
	}, nil
}

// LabelKey returns the key of the labels drawn in a micro-batch of a replica.
func LabelKey(c *Compiled, step, batch, replica int) []uint32 {
	return c.plan.keyValues(labelKeys, step, batch, replica)
}

// QuantizedValues quantizes the weights as a step does, and returns the values by weight.
func QuantizedValues(c *Compiled, s *State) (map[string][]float32, error) {
	t := maps.Clone(s.Tensors)
	defer func() { keepState(s.Tensors, t) }()
	if err := c.runQuantize(&c.plan, t); err != nil {
		return nil, err
	}
	out := map[string][]float32{}
	for name := range c.plan.Weights {
		values, err := engine.Download[float32](t[program.KindValue.Of(name)])
		if err != nil {
			return nil, err
		}
		out[name] = values
	}
	return out, nil
}
