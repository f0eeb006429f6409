package sdk

import (
	"fmt"
	"iter"

	"github.com/cage-qat/cage/sdk/program"
)

// OptimizerProgram is an optimizer's answer for one tensor in the form that
// crosses the process boundary.
type OptimizerProgram struct {
	// Accepts is false when a [Selective] optimizer is not meant for the tensor;
	// there are no programs then.
	Accepts bool
	// Init maps x to the state; nil exactly when there is no state.
	Init *program.Program
	// Update maps x, gradient, step and the state to direction and the next state.
	Update *program.Program
	// State lists the state tensors in the order of their names.
	State []StateTensor
	// Observe takes what Update takes and returns some of the state; the rest
	// stays as it is. It is nil when nothing is observed.
	Observe *program.Program
	// FirstRefresh and Refresh map step and the state to some of the state. Each
	// is nil exactly when Due never asks for it.
	FirstRefresh, Refresh *program.Program
	// Due says at which updates a refresh precedes Update.
	Due Due
}

// Programs yields the programs that are present, with their names: init, update, observe,
// first_refresh, refresh.
func (o OptimizerProgram) Programs() iter.Seq2[string, *program.Program] {
	return present([]named{{"init", o.Init}, {"update", o.Update}, {"observe", o.Observe}, {"first_refresh", o.FirstRefresh}, {"refresh", o.Refresh}})
}

// Check verifies the signatures of valid programs for a tensor of the given shape,
// that there are exactly the refresh programs that Due asks for, and that no other
// program factorizes.
func (o OptimizerProgram) Check(shape []int) error {
	if !o.Accepts {
		for name := range o.Programs() {
			return fmt.Errorf("the tensor is not accepted, but there is a program %s for it", name)
		}
		return nil
	}
	if err := checkList("state tensor", o.State); err != nil {
		return err
	}
	if err := o.Due.check(); err != nil {
		return fmt.Errorf("refreshes are due at %w", err)
	}
	tensor := program.FloatType(shape...)
	step := program.Input{Name: InputStep, Type: program.FloatType()}
	state := ports(StatePrefix, o.State)
	inputs := append([]program.Input{{Name: InputX, Type: tensor}, {Name: InputGradient, Type: tensor}, step}, state...)
	next := append([]program.Input{{Name: OutputDirection, Type: tensor}}, state...)
	refresh := append([]program.Input{step}, state...)
	for _, c := range []struct {
		p      *program.Program
		wanted bool
		signature
	}{
		{o.Init, len(state) > 0, signature{name: "init", inputs: inputs[:1], outputs: state, when: "there are state tensors"}},
		{o.Update, true, signature{name: "update", inputs: inputs, outputs: next}},
		{o.Observe, o.Observe != nil, signature{name: "observe", inputs: inputs, outputs: state, some: true}},
		{o.FirstRefresh, o.Due.First > 0, signature{name: "first refresh", inputs: refresh, outputs: state, some: true, factorizes: true, when: "one is due"}},
		{o.Refresh, o.Due.Every > 0, signature{name: "refresh", inputs: refresh, outputs: state, some: true, factorizes: true, when: "more than one is due"}},
	} {
		if err := c.signature.check(c.p, c.wanted); err != nil {
			return err
		}
	}
	return nil
}
