package sdk

import (
	"fmt"

	"github.com/cage-qat/cage/sdk/program"
)

// BuildOptimizer calls o for one tensor and returns its checked programs. If o does not
// accept the tensor, there are none, and Accepts is false. Errors of the author's code,
// panics included, come back as errors that name the tensor.
func BuildOptimizer(o Optimizer, t Tensor) (OptimizerProgram, error) {
	return build(KindOptimizer, t.Name, o.Describe, func(name string) (OptimizerProgram, error) {
		return buildOptimizer(o, name, t)
	})
}

func buildOptimizer(o Optimizer, name string, t Tensor) (OptimizerProgram, error) {
	if s, ok := o.(Selective); ok && !s.Accepts(t) {
		return OptimizerProgram{}, nil
	}
	b := &optimizerBuilder{plugin: name, tensor: t}
	b.out.Accepts = true
	if err := b.init(o); err != nil {
		return b.out, err
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
	return b.out, b.out.Check(t.Shape)
}

// optimizerBuilder writes the programs of one tensor.
type optimizerBuilder struct {
	plugin string
	tensor Tensor
	out    OptimizerProgram
}

func (o *optimizerBuilder) builder(which string) *program.Builder {
	return program.NewBuilder(o.plugin + "/" + which + "/" + o.tensor.Name)
}

func (o *optimizerBuilder) init(author Optimizer) error {
	b := o.builder("init")
	state, err := author.Init(b, b.Input(InputX, program.FloatType(o.tensor.Shape...)), o.tensor)
	if err != nil {
		return err
	}
	o.out.State = outputState(b, StatePrefix, state)
	o.out.Init, err = o.finish(b, "init", state)
	return err
}

func (o *optimizerBuilder) update(author Optimizer) error {
	b := o.builder("update")
	u, next, err := author.Update(b, o.updateInput(b), o.tensor)
	if err != nil {
		return err
	}
	b.Output(OutputDirection, u)
	outputState(b, StatePrefix, next)
	o.out.Update, err = finishUsed(b, "update", optionalInputs())
	return err
}

func (o *optimizerBuilder) pacer(author Pacer) error {
	b := o.builder("rate")
	rate, err := author.Rate(b, o.updateInput(b), o.tensor)
	if err != nil {
		return err
	}
	b.Output(OutputRate, rate)
	o.out.Rate, err = finishUsed(b, "rate", optionalInputs())
	return err
}

func (o *optimizerBuilder) refresher(author Refresher) error {
	b := o.builder("observe")
	seen, err := author.Observe(b, o.updateInput(b), o.tensor)
	if err != nil {
		return err
	}
	outputState(b, StatePrefix, seen)
	if o.out.Observe, err = o.finish(b, "observe", seen); err != nil {
		return err
	}
	o.out.Due = author.RefreshAt(o.tensor)
	if err := o.out.Due.check(); err != nil {
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
	b := o.builder(which)
	in := RefreshInput{Step: b.Input(InputStep, program.FloatType()), State: inputState(b, StatePrefix, o.out.State)}
	renewed, err := author.Refresh(b, in, first, o.tensor)
	if err != nil {
		return nil, err
	}
	outputState(b, StatePrefix, renewed)
	return o.finish(b, which, renewed)
}

func (o *optimizerBuilder) updateInput(b *program.Builder) UpdateInput {
	tensor := program.FloatType(o.tensor.Shape...)
	in := UpdateInput{
		X:        b.Input(InputX, tensor),
		Gradient: b.Input(InputGradient, tensor),
		Step:     b.Input(InputStep, program.FloatType()),
		State:    inputState(b, StatePrefix, o.out.State),
	}
	declared := map[string]program.Value{}
	for _, i := range optionalInputs() {
		declared[i.Name] = b.Input(i.Name, i.Type)
	}
	in.Rate, in.Steps, in.Loss = declared[InputRate], declared[InputSteps], declared[InputLoss]
	return in
}

// finish builds a program that returns state. A program that returns none does nothing,
// and is left out.
func (o *optimizerBuilder) finish(b *program.Builder, which string, state State) (*program.Program, error) {
	if len(state) == 0 {
		return nil, b.Err() // a mistake in what is left out is still a mistake
	}
	return finishUsed(b, which, optionalInputs())
}
