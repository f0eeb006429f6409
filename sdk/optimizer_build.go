package sdk

import (
	"cmp"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/spec"
)

// BuildOptimizer calls o for one tensor and returns its checked programs. If o does not
// accept the tensor, there are none, and Accepts is false. Errors of the author's code,
// panics included, come back as errors that name the tensor.
func BuildOptimizer(o Optimizer, t Tensor) (spec.Optimizer, error) {
	return build(KindOptimizer, t.Name, o.Describe, func(a *authoring) (spec.Optimizer, error) {
		return buildOptimizer(o, a, t)
	})
}

func buildOptimizer(o Optimizer, a *authoring, t Tensor) (spec.Optimizer, error) {
	if o, ok := o.(opaque); ok {
		return o.build(t)
	}
	if s, ok := o.(Selective); ok && !s.Accepts(t) {
		return spec.Optimizer{}, nil
	}
	b := &optimizerBuilder{authoring: a, tensor: t}
	b.out.Accepts = true
	if err := b.init(o); err != nil {
		return b.out, err
	}
	if c, ok := o.(Collector); ok {
		if err := b.collector(c); err != nil {
			return b.out, err
		}
	}
	if p, ok := o.(Prober); ok {
		if err := b.prober(p); err != nil {
			return b.out, err
		}
	}
	if s, ok := o.(Sampler); ok {
		if err := b.sampler(s); err != nil {
			return b.out, err
		}
	}
	if err := b.update(o); err != nil {
		return b.out, err
	}
	if r, ok := o.(Refresher); ok {
		if err := b.refresher(r); err != nil {
			return b.out, err
		}
	}
	if p, ok := o.(Pacer); ok {
		if err := b.pacer(p); err != nil {
			return b.out, err
		}
	}
	if a, ok := o.(Averaged); ok {
		if err := b.averaged(a); err != nil {
			return b.out, err
		}
	}
	if r, ok := o.(Rounded); ok {
		b.out.Rounded = r.RoundTo(t)
	}
	return b.out, b.out.Check(t.Shape)
}

// optimizerBuilder writes the programs of one tensor.
type optimizerBuilder struct {
	*authoring
	tensor Tensor
	out    spec.Optimizer
}

func (o *optimizerBuilder) start(which string) *program.Builder {
	return o.builder(which + "/" + o.tensor.Name)
}

func (o *optimizerBuilder) init(author Optimizer) error {
	b := o.start("init")
	state, err := author.Init(b, b.Input(spec.InputX, program.FloatType(o.tensor.Shape...)), o.tensor)
	if err = cmp.Or(err, b.Err()); err != nil {
		return err
	}
	o.out.State = outputState(b, spec.StatePrefix, state)
	if err := o.setStorage(author); err != nil {
		return err
	}
	method, _ := reflect.TypeOf(author).MethodByName("Init")
	o.out.Init, err = o.finish(b, "init", method, state)
	return err
}

func (o *optimizerBuilder) setStorage(author Optimizer) error {
	c, ok := author.(Compact)
	if !ok {
		return nil
	}
	for name, storage := range c.Storage(o.tensor) {
		i := slices.IndexFunc(o.out.State, func(s spec.Tensor) bool { return s.Name == name })
		if i < 0 {
			return fmt.Errorf("Storage names the state tensor %s, which Init does not return", name)
		}
		o.out.State[i].Storage = storage
	}
	return nil
}

// optional are the inputs that a program may leave out. There are sums once Collect has been built.
func (o *optimizerBuilder) optional() []program.Input {
	collected, _ := o.out.Collected() // Check reports the error
	return spec.UpdateInputs(collected...)
}

func (o *optimizerBuilder) collector(author Collector) error {
	b := o.start("collect")
	scalars, err := author.Collect(b, o.updateInput(b), o.tensor)
	if err = cmp.Or(err, b.Err()); err != nil || len(scalars) == 0 {
		return err
	}
	outputState(b, spec.GlobalPrefix, scalars)
	method, _ := reflect.TypeOf(author).MethodByName("Collect")
	o.out.Collect, err = finishUsed(b, "collect", method, o.optional())
	return err
}

func (o *optimizerBuilder) update(author Optimizer) error {
	b := o.start("update")
	in, optional := o.updateInput(b), o.optional()
	if o.out.ProbeDue.First > 0 {
		more := spec.ProbeInputs(o.tensor.Shape)
		in.Probed, in.Probing = b.Input(more[0].Name, more[0].Type), b.Input(more[1].Name, more[1].Type)
		optional = append(optional, more...)
	}
	u, next, err := author.Update(b, in, o.tensor)
	if err = cmp.Or(err, b.Err()); err != nil {
		return err
	}
	b.Output(spec.OutputDirection, u)
	outputState(b, spec.StatePrefix, next)
	method, _ := reflect.TypeOf(author).MethodByName("Update")
	o.out.Update, err = finishUsed(b, "update", method, optional)
	return err
}

func (o *optimizerBuilder) prober(author Prober) error {
	o.out.ProbeDue = author.ProbeAt(o.tensor)
	if err := o.out.ProbeDue.Check(); err != nil {
		return fmt.Errorf("probes are due at %w", err)
	}
	if o.out.ProbeDue.First == 0 {
		return nil
	}
	b := o.start("probe")
	offset, err := author.Probe(b, o.updateInput(b), o.tensor)
	if err = cmp.Or(err, b.Err()); err != nil {
		return err
	}
	b.Output(spec.OutputOffset, offset)
	method, _ := reflect.TypeOf(author).MethodByName("Probe")
	o.out.Probe, err = finishUsed(b, "probe", method, o.optional())
	return err
}

func (o *optimizerBuilder) sampler(author Sampler) error {
	due := author.SampleAt(o.tensor)
	if err := due.Check(); err != nil {
		return fmt.Errorf("labels are drawn at %w", err)
	}
	if due.First == 0 {
		return nil
	}
	if o.out.ProbeDue.First > 0 {
		return errors.New("there is one second gradient, but ProbeAt and SampleAt are both ever due: let one of them return Due{}")
	}
	o.out.ProbeDue, o.out.Sampled = due, true
	return nil
}

func (o *optimizerBuilder) pacer(author Pacer) error {
	b := o.start("rate")
	rate, err := author.Rate(b, o.updateInput(b), o.tensor)
	if err = cmp.Or(err, b.Err()); err != nil {
		return err
	}
	b.Output(spec.OutputRate, rate)
	method, _ := reflect.TypeOf(author).MethodByName("Rate")
	o.out.Rate, err = finishUsed(b, "rate", method, o.optional())
	return err
}

func (o *optimizerBuilder) averaged(author Averaged) error {
	b := o.start("evaluate")
	x := b.Input(spec.InputX, program.FloatType(o.tensor.Shape...))
	weights, err := author.Evaluate(b, x, inputState(b, spec.StatePrefix, o.out.State), o.tensor)
	if err = cmp.Or(err, b.Err()); err != nil {
		return err
	}
	b.Output(spec.OutputWeights, weights)
	method, _ := reflect.TypeOf(author).MethodByName("Evaluate")
	o.out.Evaluate, err = finish(b, "evaluate", method)
	return err
}

func (o *optimizerBuilder) refresher(author Refresher) error {
	b := o.start("observe")
	seen, err := author.Observe(b, o.updateInput(b), o.tensor)
	if err = cmp.Or(err, b.Err()); err != nil {
		return err
	}
	outputState(b, spec.StatePrefix, seen)
	method, _ := reflect.TypeOf(author).MethodByName("Observe")
	if o.out.Observe, err = o.finish(b, "observe", method, seen); err != nil {
		return err
	}
	o.out.Due = author.RefreshAt(o.tensor)
	if err := o.out.Due.Check(); err != nil {
		return fmt.Errorf("refreshes are due at %w", err)
	}
	if o.out.Due.First > 0 {
		if o.out.FirstRefresh, err = o.refresh(author, true); err != nil {
			return err
		}
	}
	if o.out.Due.Every > 0 {
		o.out.Refresh, err = o.refresh(author, false)
	}
	return err
}

func (o *optimizerBuilder) refresh(author Refresher, first bool) (*program.Program, error) {
	which := "refresh"
	if first {
		which = "first_refresh"
	}
	b := o.start(which)
	in := RefreshInput{Step: b.Input(spec.InputStep, program.FloatType()), State: inputState(b, spec.StatePrefix, o.out.State)}
	renewed, err := author.Refresh(b, in, first, o.tensor)
	if err = cmp.Or(err, b.Err()); err != nil {
		return nil, err
	}
	outputState(b, spec.StatePrefix, renewed)
	method, _ := reflect.TypeOf(author).MethodByName("Refresh")
	return o.finish(b, which, method, renewed)
}

func (o *optimizerBuilder) updateInput(b *program.Builder) UpdateInput {
	tensor := program.FloatType(o.tensor.Shape...)
	in := UpdateInput{
		X:        b.Input(spec.InputX, tensor),
		Gradient: b.Input(spec.InputGradient, tensor),
		Step:     b.Input(spec.InputStep, program.FloatType()),
		State:    inputState(b, spec.StatePrefix, o.out.State),
	}
	declared := map[string]program.Value{}
	for _, i := range o.optional() {
		declared[i.Name] = b.Input(i.Name, i.Type)
	}
	in.Rate, in.Steps, in.Loss, in.Noise = declared[spec.InputRate], declared[spec.InputSteps], declared[spec.InputLoss], declared[spec.InputNoise]
	if o.out.Collect != nil {
		in.Global = State{}
		for name, v := range declared {
			if sum, ok := strings.CutPrefix(name, spec.GlobalPrefix); ok {
				in.Global[sum] = v
			}
		}
	}
	return in
}

// finish builds a program that returns state. A program that returns none does nothing,
// and is left out.
func (o *optimizerBuilder) finish(b *program.Builder, which string, method reflect.Method, state State) (*program.Program, error) {
	if len(state) == 0 {
		return nil, nil
	}
	return finishUsed(b, which, method, o.optional())
}
