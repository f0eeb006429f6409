package sdk

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/spec"
)

// BuildOptimizer calls o for one tensor and returns its checked programs. If o does not accept the
// tensor, Accepts is false and there are no programs. Errors and panics of the author's code are
// returned as errors that name the tensor.
func BuildOptimizer(o Optimizer, t Tensor) (spec.Optimizer, error) {
	return build(KindOptimizer, t.Name, o.Describe, func(a *authoring) spec.Optimizer {
		if o, ok := o.(opaque); ok {
			return o.build(t)
		}
		if s, ok := o.(Selective); ok && !s.Accepts(t) {
			return spec.Optimizer{}
		}
		b := &optimizerBuilder{authoring: a, author: o, tensor: t, optional: spec.UpdateInputs()}
		b.out.Accepts = true
		b.build()
		must(b.out.Check(t.Shape))
		return b.out
	})
}

type optimizerBuilder struct {
	*authoring
	author   Optimizer
	tensor   Tensor
	out      spec.Optimizer
	optional []program.Input // inputs that an update program has only if it uses them
}

func (o *optimizerBuilder) build() {
	t, tensor := o.tensor, program.FloatType(o.tensor.Shape...)
	o.out.Init = o.write("init", "Init", func(b *program.Builder) ([]output, error) {
		state, err := o.author.Init(b, b.Input(spec.InputX, tensor), t)
		o.out.State = tensorsOf(state)
		return outputsOf(spec.StatePrefix, state), err
	})
	if c, ok := o.author.(Compact); ok {
		for name, storage := range c.Storage(t) {
			i := slices.IndexFunc(o.out.State, func(s spec.Tensor) bool { return s.Name == name })
			if i < 0 {
				must(fmt.Errorf("Storage names the state tensor %s, which Init does not return", name))
			}
			o.out.State[i].Storage = storage
		}
	}
	if c, ok := o.author.(Collector); ok {
		o.out.Collect = o.write("collect", "Collect", func(b *program.Builder) ([]output, error) {
			sums, err := c.Collect(b, o.updateInput(b), t)
			return outputsOf(spec.GlobalPrefix, sums), err
		})
		collected, _ := o.out.Collected() // Check reports the error
		o.optional = spec.UpdateInputs(collected...)
	}
	if p, ok := o.author.(Prober); ok {
		o.out.ProbeDue = p.ProbeAt(t)
		if err := o.out.ProbeDue.Check(); err != nil {
			must(fmt.Errorf("ProbeAt: %w", err))
		}
		if o.out.ProbeDue.First > 0 {
			o.out.Probe = o.write("probe", "Probe", func(b *program.Builder) ([]output, error) {
				offset, err := p.Probe(b, o.updateInput(b), t)
				return []output{{spec.OutputOffset, offset}}, err
			})
		}
	}
	if s, ok := o.author.(Sampler); ok {
		due := s.SampleAt(t)
		switch err := due.Check(); {
		case err != nil:
			must(fmt.Errorf("SampleAt: %w", err))
		case due == Due{}:
		case o.out.ProbeDue.First > 0:
			must(errors.New("probes and samples are both due at some time, but there is only one " +
				"second gradient: let ProbeAt or SampleAt return Due{}"))
		default:
			o.out.ProbeDue, o.out.Sampled = due, true
		}
	}
	var probe []program.Input
	if o.out.ProbeDue.First > 0 {
		probe = spec.ProbeInputs(t.Shape)
	}
	optional := slices.Concat(o.optional, probe)
	update := func(b *program.Builder) ([]output, error) {
		in := o.updateInput(b)
		if probe != nil {
			declare(b, probe, &in.Probed, &in.Probing)
		}
		u, next, err := o.author.Update(b, in, t)
		return append([]output{{spec.OutputDirection, u}}, outputsOf(spec.StatePrefix, next)...), err
	}
	o.out.Update = o.authoring.write("update", t.Name, o.author, "Update", optional, update)
	if r, ok := o.author.(Refresher); ok {
		o.out.Observe = o.write("observe", "Observe", func(b *program.Builder) ([]output, error) {
			seen, err := r.Observe(b, o.updateInput(b), t)
			return outputsOf(spec.StatePrefix, seen), err
		})
		refresh := func(which string, first bool) *program.Program {
			gradient := []program.Input{{Name: spec.InputGradient, Type: tensor}}
			call := func(b *program.Builder) ([]output, error) {
				in := RefreshInput{Step: b.Input(spec.InputStep, program.FloatType())}
				in.State = inputState(b, spec.StatePrefix, o.out.State)
				in.Gradient = b.Input(spec.InputGradient, tensor)
				renewed, err := r.Refresh(b, in, first, t)
				return outputsOf(spec.StatePrefix, renewed), err
			}
			return o.authoring.write(which, t.Name, r, "Refresh", gradient, call)
		}
		o.out.Due = r.RefreshAt(t)
		if o.out.Due.First > 0 {
			o.out.FirstRefresh = refresh("first_refresh", true)
		}
		if o.out.Due.Every > 0 {
			o.out.Refresh = refresh("refresh", false)
		}
	}
	if p, ok := o.author.(Pacer); ok {
		o.out.Rate = o.write("rate", "Rate", func(b *program.Builder) ([]output, error) {
			rate, err := p.Rate(b, o.updateInput(b), t)
			return []output{{spec.OutputRate, rate}}, err
		})
	}
	if a, ok := o.author.(Averaged); ok {
		o.out.Evaluate = o.write("evaluate", "Evaluate", func(b *program.Builder) ([]output, error) {
			x := b.Input(spec.InputX, tensor)
			weights, err := a.Evaluate(b, x, inputState(b, spec.StatePrefix, o.out.State), t)
			return []output{{spec.OutputWeights, weights}}, err
		})
	}
	if r, ok := o.author.(Rounded); ok {
		o.out.Rounded = r.RoundTo(t)
	}
}

func (o *optimizerBuilder) write(which, method string, call body) *program.Program {
	return o.authoring.write(which, o.tensor.Name, o.author, method, o.optional, call)
}

func (o *optimizerBuilder) updateInput(b *program.Builder) UpdateInput {
	tensor := program.FloatType(o.tensor.Shape...)
	in := UpdateInput{
		X:        b.Input(spec.InputX, tensor),
		Gradient: b.Input(spec.InputGradient, tensor),
		Step:     b.Input(spec.InputStep, program.FloatType()),
		State:    inputState(b, spec.StatePrefix, o.out.State),
	}
	if o.out.Collect != nil {
		in.Global = State{}
	}
	declare(b, o.optional, &in.Rate, &in.Steps, &in.Loss, &in.Noise) // as in spec.UpdateInputs
	for _, sum := range o.optional[len(spec.UpdateInputs()):] {
		in.Global[strings.TrimPrefix(sum.Name, spec.GlobalPrefix)] = b.Input(sum.Name, sum.Type)
	}
	return in
}
