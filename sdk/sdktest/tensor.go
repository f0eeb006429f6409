package sdktest

import (
	"fmt"
	"maps"
	"slices"

	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/reference"
)

// tensor is an optimizer's answer for one tensor.
type tensor struct {
	sdk.OptimizerProgram
	place
	variant variant
}

// path is a tensor on its way through updates. The parameter itself is the caller's.
type path struct {
	*tensor
	m     Machine
	state map[string]reference.Tensor // by input name
	t     int                         // updates done
	// single keeps the state in binary32, as a device does.
	single bool
	// skipRefresh leaves the refreshes out.
	skipRefresh bool
	// beforeUpdate, if any, is called between the refresh and the update.
	beforeUpdate func()
	// trace sees every program before it runs.
	trace func(what string, p *program.Program, inputs map[string]reference.Tensor)
}

// start initialises the state from x.
func (s *tensor) start(m Machine, x []float64) (*path, error) {
	p := &path{tensor: s, m: m, state: map[string]reference.Tensor{}, single: m != oracle{}}
	return p, p.run("init", s.Init, map[string]reference.Tensor{sdk.InputX: reference.Floats(x, s.shape...)}, nil)
}

// fork is a path that goes on from the same state.
func (p *path) fork() *path {
	other := *p
	other.state = maps.Clone(p.state)
	return &other
}

// step is update t of the tensor as hosts run it: observe, refresh if one is due,
// update. x is the parameter after decay.
func (p *path) step(x, gradient []float64) (u []float64, err error) {
	p.t++
	inputs := map[string]reference.Tensor{
		sdk.InputX: reference.Floats(x, p.shape...), sdk.InputGradient: reference.Floats(gradient, p.shape...),
		sdk.InputStep: reference.Float(float64(p.t)),
	}
	if err := p.run("observe", p.Observe, inputs, nil); err != nil {
		return nil, err
	}
	if due, first := p.Due.At(p.t); due && !p.skipRefresh {
		if err := p.refresh(first); err != nil {
			return nil, err
		}
	}
	if p.beforeUpdate != nil {
		p.beforeUpdate()
	}
	return u, p.run("update", p.Update, inputs, &u)
}

func (p *path) refresh(first bool) error {
	step := map[string]reference.Tensor{sdk.InputStep: reference.Float(float64(p.t))}
	if first {
		return p.run("first refresh", p.FirstRefresh, step, nil)
	}
	return p.run("refresh", p.Refresh, step, nil)
}

// run executes a program with the state beside the given inputs and puts what it
// returns back into the state.
func (p *path) run(what string, prog *program.Program, given map[string]reference.Tensor, u *[]float64) error {
	if prog == nil {
		return nil
	}
	inputs := maps.Clone(given)
	if prog != p.Init {
		maps.Copy(inputs, p.state)
	}
	if p.trace != nil {
		p.trace(what, prog, inputs)
	}
	m := p.m
	if factorizes(prog) {
		m = oracle{}
	}
	out, err := m.Run(prog, inputs)
	if err != nil {
		return fmt.Errorf("%s at update %d: %w", what, p.t, err)
	}
	for name, v := range out {
		if name == sdk.OutputDirection {
			*u = v.Floats
			continue
		}
		if p.single {
			v = reference.Floats(single(v.Floats), v.Type.Shape...)
		}
		p.state[name] = v
	}
	return nil
}

// roundState takes the state through binary32, as a checkpoint does.
func (p *path) roundState() {
	for name, v := range p.state {
		p.state[name] = reference.Floats(single(v.Floats), v.Type.Shape...)
	}
}

// optimizerRun is one run of the kit on an optimizer.
type optimizerRun struct {
	options
	subject OptimizerSubject
	about   sdk.Description
	space   space
	tensors map[string]*tensor
	refused map[string]error
	// diverging are the settings, as text, with which a few steps are not finite.
	diverging map[string]bool
}

// ask returns the answer for a tensor, which is asked for once.
func (o *optimizerRun) ask(v variant, role sdk.TensorRole, shape ...int) (*tensor, error) {
	key := fmt.Sprint(role, shape, settingsText(v.changed))
	if s, ok := o.tensors[key]; ok {
		return s, o.refused[key]
	}
	s := &tensor{variant: v, place: place{role: string(role), shape: shape, settings: v.changed}}
	var err error
	s.OptimizerProgram, err = o.programs(v, role, "layers.0.wq", shape)
	o.tensors[key], o.refused[key] = s, err
	return s, err
}

func (o *optimizerRun) programs(v variant, role sdk.TensorRole, name string, shape []int) (sdk.OptimizerProgram, error) {
	out, err := o.subject.Programs(sdk.Tensor{Name: name, Role: role, Shape: slices.Clone(shape), Values: v.values})
	if err != nil {
		return out, err
	}
	return out, out.Check(shape)
}

// kinds of tensors that a model has, with a shape for tests. Preconditioners need
// sides of different length.
var tensorKinds = []struct {
	role  sdk.TensorRole
	shape []int
}{
	{sdk.TensorMatrix, []int{4, 6}}, {sdk.TensorMatrix, []int{6, 4}}, {sdk.TensorVector, []int{6}},
	{sdk.TensorEmbedding, []int{9, 4}}, {sdk.TensorHead, []int{9, 4}},
}

// accepted is the first kind of tensor that the optimizer is meant for.
func (o *optimizerRun) accepted(v variant) (*tensor, error) {
	var last error
	for _, k := range tensorKinds {
		s, err := o.ask(v, k.role, k.shape...)
		if err == nil && s.Accepts {
			return s, nil
		}
		last = err
	}
	return nil, last
}

// each calls f for every variant that the plugin answers, with the kinds of tensors
// that it accepts: all for the defaults, the first for others; on each machine.
func (o *optimizerRun) each(t *trial, machines []Machine, f func(s *tensor, m Machine)) {
	for i, v := range o.space.core() {
		for _, k := range tensorKinds {
			s, err := o.ask(v, k.role, k.shape...)
			if err != nil || !s.Accepts || o.diverging[settingsText(v.changed)] {
				continue
			}
			for _, m := range machines {
				f(s, m)
			}
			if i > 0 {
				break
			}
		}
	}
}
