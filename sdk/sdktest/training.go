package sdktest

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/reference"
	"github.com/cage-qat/cage/sdk/spec"
)

type optimizerRun struct {
	*session
	subject OptimizerSubject
	asked   map[string]*tensorAnswer
	// diverging is the set of settings, as text, for which a few steps give non-finite results.
	diverging map[string]bool
}

type tensorAnswer struct {
	spec.Optimizer
	example
	err     error
	variant variant
	tensor  sdk.Tensor
	subject OptimizerSubject
}

func (o *optimizerRun) ask(v variant, role sdk.TensorRole, shape ...int) (*tensorAnswer, error) {
	key := fmt.Sprint(role, shape, settingsText(v.changed))
	if o.asked[key] == nil {
		o.asked[key] = o.answer(v, sdk.Tensor{Name: "layers.0.wq", Role: role, Shape: shape})
	}
	if o.asked[key].err == nil && o.asked[key].Accepts {
		o.answered++
	}
	return o.asked[key], o.asked[key].err
}

func (o *optimizerRun) answer(v variant, tensor sdk.Tensor) *tensorAnswer {
	e := example{role: string(tensor.Role), shape: tensor.Shape, settings: v.changed}
	tensor.Shape, tensor.Values = slices.Clone(tensor.Shape), v.values
	s := &tensorAnswer{variant: v, tensor: tensor, subject: o.subject, example: e}
	if s.Optimizer, s.err = o.subject.Programs(tensor); s.err == nil {
		s.err = s.Check(e.shape)
	}
	return s
}

// tensorKinds are the kinds of tensors of a model, with shapes for tests. Sides differ in length,
// to test preconditioners.
var tensorKinds = []struct {
	role  sdk.TensorRole
	shape []int
}{
	{sdk.TensorMatrix, []int{4, 6}}, {sdk.TensorMatrix, []int{6, 4}}, {sdk.TensorVector, []int{6}},
	{sdk.TensorEmbedding, []int{9, 4}}, {sdk.TensorHead, []int{9, 4}},
}

// accepted lists the kinds of tensors that the optimizer accepts with the settings of a variant.
// The list is empty if these settings make it diverge. err is the error for the last kind.
func (o *optimizerRun) accepted(v variant) (list []*tensorAnswer, err error) {
	for _, k := range tensorKinds {
		var s *tensorAnswer
		diverges := o.diverging[settingsText(v.changed)]
		if s, err = o.ask(v, k.role, k.shape...); err == nil && s.Accepts && !diverges {
			list = append(list, s)
		}
	}
	return list, err
}

// on returns a check that calls f for every supported variant on each machine, with the kinds of
// tensors that the optimizer accepts: all of them for the defaults, only the first otherwise.
func (o *optimizerRun) on(machines []Machine, f func(*trial, *tensorAnswer, Machine)) func(*trial) {
	return func(t *trial) {
		for i, v := range o.space.core() {
			list, _ := o.accepted(v)
			if i > 0 {
				list = list[:min(1, len(list))]
			}
			for _, s := range list {
				for _, m := range machines {
					t.run(func() { f(t, s, m) })
				}
			}
		}
	}
}

func (o *optimizerRun) everywhere(f func(*trial, *tensorAnswer, Machine)) func(*trial) {
	return o.on(o.machines, f)
}

// byDefault returns a check that calls f for the tensors accepted with the given settings.
func (o *optimizerRun) byDefault(f func(*trial, *tensorAnswer)) func(*trial) {
	return func(t *trial) {
		list, _ := o.accepted(o.space.variants[0])
		for _, s := range list {
			t.run(func() { f(t, s) })
		}
	}
}

// training is a sequence of updates of a tensor on a machine. update leaves the current tensor to
// its caller; next keeps it in x.
type training struct {
	*tensorAnswer
	t       *trial
	m       Machine
	x       []float64 // initial values, then those after move
	state   tensors   // by input name
	updates int       // number of completed updates
	conditions
	rate      float64 // of the last update: the schedule's or the optimizer's own
	sums      tensors // values collected before the last update, from this tensor only
	paced     int     // the update for which rate and sums were computed
	exact     bool    // keeps the state in binary64, instead of in binary32 like hosts
	gradients float64 // scale of random gradients; 0 means 1
	stepShift int     // added to the step numbers that programs get
	// slope, if not nil, returns the gradient at x, for probes; otherwise the gradient is linear.
	slope func(x []float64) []float64
	// offset is the position of the last probe relative to x; nil if the last update had none.
	offset []float64
	// before, if not nil, is called before each stage of an update.
	before func(stage)
	// trace, if not nil, is called before every run of a program.
	trace func(what string, p *program.Program, inputs tensors)
}

// stage is a part of an update, in the order in which they run.
type stage int

const (
	stageBegin stage = iota // what sets the rate, probes and observes
	stageRefresh
	stageUpdate
)

func (r *training) reach(s stage) {
	if r.before != nil {
		r.before(s)
	}
}

// conditions holds the scalar inputs of an update.
type conditions struct{ schedule, steps, loss float64 }

// ordinary returns the conditions for checks that do not vary them. For an optimizer with its own
// rate, the schedule's rate is about 1.
func (s *tensorAnswer) ordinary() conditions {
	c := conditions{schedule: 0.01, steps: 100, loss: 2}
	if s.Rate != nil {
		c.schedule = 1
	}
	return c
}

// train returns a training run of the tensor from normal random values and the initial state.
func (s *tensorAnswer) train(t *trial, m Machine) *training {
	r := s.untrained(t, m, normal(11, s.shape...))
	t.must(r.at(), r.init())
	return r
}

func (s *tensorAnswer) untrained(t *trial, m Machine, x []float64) *training {
	return &training{tensorAnswer: s, t: t, m: m, x: x, state: tensors{},
		conditions: s.ordinary()}
}

func (r *training) init() error {
	if !r.Opaque {
		_, err := r.run("init", r.Init, tensors{spec.InputX: r.floats(r.x)})
		return err
	}
	for _, t := range r.State {
		zeros := make([]float64, program.FloatType(t.Shape...).Size())
		r.state[spec.StatePrefix+t.Name] = reference.Floats(zeros, t.Shape...)
	}
	return nil
}

func (r *training) at() example { return r.example.on(r.m) }

func (r *training) floats(v []float64) reference.Tensor { return reference.Floats(v, r.shape...) }

// next makes an update with a new normal random gradient, moves x, and returns the direction. An
// error fails the trial and ends the example.
func (r *training) next(seed uint64) (u []float64) {
	u = r.update(r.x, r.gradient(seed))
	r.move(u)
	return u
}

func (r *training) move(u []float64) { r.x = axpy(r.x, -r.rate, u) }

// gradient returns the gradient of the next update: normal random numbers plus a constant part,
// without which an optimizer would make no progress.
func (r *training) gradient(seed uint64) []float64 {
	same, other := normal(seed, r.shape...), normal(seed+1+uint64(r.updates), r.shape...)
	return scaled(cmp.Or(r.gradients, 1), axpy(scaled(0.6, same), 0.8, other))
}

func (r *training) update(x, gradient []float64) []float64 {
	u, err := r.step(x, gradient)
	r.t.must(r.at(), err)
	return u
}

func (r *training) inputs(x, gradient []float64) tensors {
	inputs := tensors{
		spec.InputX:        r.floats(x),
		spec.InputGradient: r.floats(gradient),
		spec.InputStep:     reference.Float(float64(r.updates + 1 + r.stepShift)),
		spec.InputNoise:    reference.Uints([]uint32{uint32(r.updates), 77}, 2),
		spec.InputRate:     reference.Float(r.schedule),
		spec.InputSteps:    reference.Float(r.steps),
		spec.InputLoss:     reference.Float(r.loss),
	}
	maps.Copy(inputs, r.sums)
	return inputs
}

func (r *training) pace(x, gradient []float64) (err error) {
	if r.paced == r.updates+1 {
		return nil
	}
	r.paced, r.rate = r.updates+1, r.schedule
	if r.Collect != nil {
		if r.sums, err = r.execute("collect", r.Collect, r.inputs(x, gradient)); err != nil {
			return err
		}
	}
	if r.Rate == nil {
		return nil
	}
	out, err := r.execute("rate", r.Rate, r.inputs(x, gradient))
	if err == nil {
		r.rate = out[spec.OutputRate].Floats[0]
	}
	return err
}

func (r *training) probe(x, gradient []float64, inputs tensors) error {
	probed, probing := gradient, 0.0
	r.offset = nil
	due, _ := r.ProbeDue.At(r.updates + 1)
	switch {
	case due && r.Sampled: // the mean of its square is the curvature below
		probed, probing = normal(uint64(500+r.updates), r.shape...), 1
		for i := range probed {
			probed[i] *= math.Sqrt(0.5 + 0.25*float64(i%5))
		}
	case due:
		out, err := r.execute("probe", r.Probe, inputs)
		if err != nil {
			return err
		}
		r.offset = out[spec.OutputOffset].Floats
		probing = 1
		if at := axpy(x, 1, r.offset); r.slope != nil {
			probed = r.slope(at)
		} else {
			probed = slices.Clone(gradient)
			for i, p := range r.offset { // a curvature that varies by element
				probed[i] += (0.5 + 0.25*float64(i%5)) * p
			}
		}
	}
	inputs[spec.InputProbed], inputs[spec.InputProbing] = r.floats(probed), reference.Float(probing)
	return nil
}

func (r *training) evaluated(x []float64) ([]float64, error) {
	if r.Evaluate == nil {
		return x, nil
	}
	out, err := r.execute("evaluate", r.Evaluate, tensors{spec.InputX: r.floats(x)})
	if err != nil {
		return nil, err
	}
	return out[spec.OutputWeights].Floats, nil
}

// step makes the next update as hosts do: observe, refresh if one is due, update. x is the tensor
// after decay; the rate is that of a step without decay.
func (r *training) step(x, gradient []float64) (u []float64, err error) {
	r.reach(stageBegin)
	if r.Opaque {
		r.rate = r.schedule
		in := r.opaqueStep(x, gradient)
		if err := r.subject.Step(r.tensor, in); err != nil {
			return nil, err
		}
		r.updates++
		for _, t := range r.State {
			next := converted[float64](in.Next[t.Name])
			r.state[spec.StatePrefix+t.Name] = reference.Floats(next, t.Shape...)
		}
		return converted[float64](in.Direction), nil
	}
	if err := r.pace(x, gradient); err != nil {
		return nil, err
	}
	inputs := r.inputs(x, gradient)
	given := tensors{spec.InputStep: inputs[spec.InputStep], spec.InputGradient: r.floats(gradient)}
	if err := r.probe(x, gradient, inputs); err != nil {
		return nil, err
	}
	r.updates++
	if _, err := r.run("observe", r.Observe, inputs); err != nil {
		return nil, err
	}
	r.reach(stageRefresh)
	if due, first := r.Due.At(r.updates); due {
		what, p := "refresh", r.Refresh
		if first {
			what, p = "first refresh", r.FirstRefresh
		}
		if _, err := r.run(what, p, given); err != nil {
			return nil, err
		}
	}
	r.reach(stageUpdate)
	return r.run("update", r.Update, inputs)
}

// run executes a program on the state and the given inputs, and stores its outputs in the state,
// except a direction, which it returns.
func (r *training) run(what string, p *program.Program, given tensors) (u []float64, err error) {
	if p == nil {
		return nil, nil
	}
	out, err := r.execute(what, p, given)
	for name, v := range out {
		if name == spec.OutputDirection {
			u = v.Floats
			continue
		}
		r.state[name] = r.kept(name, v)
		storage := r.storage(name)
		if storage == sdk.StoreFloat32 || storage == sdk.StoreBFloat16 {
			continue
		}
		for i, x := range v.Floats {
			if storage.Round(x) != x {
				return nil, fmt.Errorf("%s at update %d: element %d of %s is %v, which is kept as %s: "+
					"return integers in its range", what, r.updates, i, name, x, storage)
			}
		}
	}
	return u, err
}

func (r *training) kept(name string, v reference.Tensor) reference.Tensor {
	storage := r.storage(name)
	if storage == sdk.StoreFloat32 && r.exact {
		return v
	}
	return reference.Floats(mapped(v.Floats, storage.Round), v.Type.Shape...)
}

func (s *tensorAnswer) storage(name string) sdk.Storage {
	for _, t := range s.State {
		if spec.StatePrefix+t.Name == name {
			return t.Storage
		}
	}
	return sdk.StoreFloat32
}

func (r *training) execute(what string, p *program.Program, given tensors) (tensors, error) {
	inputs := tensors{}
	for _, in := range p.Inputs {
		if v, ok := given[in.Name]; ok {
			inputs[in.Name] = v
		} else if v, ok := r.state[in.Name]; ok {
			inputs[in.Name] = v
		}
	}
	if r.trace != nil {
		r.trace(what, p, inputs)
	}
	m := r.m
	if factorizes(p) {
		m = Reference{}
	}
	out, err := m.Run(p, inputs)
	if err != nil {
		return nil, fmt.Errorf("%s at update %d: %w", what, r.updates, err)
	}
	return out, nil
}

// factorizes reports whether a program contains a factorization. Such a program runs only on the
// reference implementation, as refreshes do in hosts.
func factorizes(p *program.Program) bool {
	return slices.ContainsFunc(p.Nodes, func(n program.Node) bool {
		info, _ := n.Op.Info()
		return info.Class == program.ClassLinalg
	})
}

func (r *training) opaqueStep(x, gradient []float64) sdk.OpaqueStep {
	in := sdk.OpaqueStep{
		X: converted[float32](x), Gradient: converted[float32](gradient), Direction: unwritten(len(x)),
		Step: r.updates + 1 + r.stepShift, Steps: int(r.steps), Rate: r.schedule, Loss: r.loss,
		State: map[string][]float32{}, Next: map[string][]float32{},
	}
	for _, t := range r.State {
		in.State[t.Name] = converted[float32](r.state[spec.StatePrefix+t.Name].Floats)
		in.Next[t.Name] = unwritten(len(in.State[t.Name]))
	}
	return in
}
