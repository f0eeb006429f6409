package step

import (
	"maps"

	"github.com/gomlx/gomlx/core/graph"

	"github.com/cage-qat/cage/host/cage"
	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/compute/refresh"
	"github.com/cage-qat/cage/host/compute/update"
	"github.com/cage-qat/cage/host/model"
	"github.com/cage-qat/cage/sdk/program"
)

// Stages returns the number of executables that are kept.
func Stages(c *Compiled) int { return len(c.stages) }

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

// Tiled returns the number of update rules that run in tiles, and of all rules, for a form of the
// correction with or without statistics.
func (c *Compiled) Tiled(form string, statistics bool) (tiled, all int, err error) {
	u, err := c.update(updateKind{mode: cage.Mode(form), part: cage.Updating, statistics: statistics})
	if err != nil {
		return 0, 0, err
	}
	return u.Executed["cpu"], len(c.plan.Rules), nil
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
		return c.runUpdate(t,
			updateKind{mode: c.mode(set), part: cage.Updating, statistics: set.Statistics},
			c.scalars(set, 1, 0), &Result{GradNorm: 1})
	}, nil
}

// Logits returns the logits of the next token at each position of a batch [batch, context], as flat
// [batch, context, vocabulary], computed in a single forward pass.
func (e *Evaluator) Logits(tokens []int32) ([]float32, error) {
	p := &e.c.plan
	t, err := engine.Upload(e.c.dev, tokens, p.Batch, p.Context)
	if err != nil {
		return nil, err
	}
	defer t.Finalize()
	return e.runStage("logits", func() update.Stage {
		spec := engine.Spec{Name: tokensName, Shape: t.Shape()}
		return update.Stage{Name: "logits", Inputs: append(p.forwardSpecs(false), spec),
			Build: func(in update.Nodes) update.Nodes {
				ids := in[tokensName]
				last := graph.Slice(ids, graph.AxisRange(), graph.AxisRange(0, 1)) // any target
				batch := graph.Concatenate([]*graph.Node{ids, last}, 1)
				return update.Nodes{"logits": p.Model.(model.Language).
					BatchLogits(p.weightNodes(in, false), batch, activationQuantizer(p.Activations, in))}
			}}
	}, update.Tensors{tokensName: t})
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
