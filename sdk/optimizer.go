package sdk

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/cage-qat/cage/sdk/program"
)

// Optimizer writes the update direction for a parameter tensor as two pure
// functions: state in, state out.
type Optimizer interface {
	// Describe names the plugin and declares its parameters.
	Describe() Description
	// Init builds the initial state for a tensor with the initial value x.
	Init(b *program.Builder, x program.Value, t Tensor) (State, error)
	// Update builds the direction u and the next state. The host applies
	// x ← x − α·u with its learning rate α. u has the shape of the tensor; the
	// next state has the names and shapes of the state.
	Update(b *program.Builder, in UpdateInput, t Tensor) (u program.Value, next State, err error)
}

// TensorRole says what part a parameter plays in the model.
type TensorRole string

// The roles of parameter tensors.
const (
	TensorMatrix    TensorRole = "matrix"    // weight of a linear layer inside a block
	TensorVector    TensorRole = "vector"    // norm weight, bias
	TensorEmbedding TensorRole = "embedding" // token embedding
	TensorHead      TensorRole = "head"      // output head
)

// Tensor is a trained parameter of the model.
type Tensor struct {
	Name  string
	Role  TensorRole
	Shape []int
	// Values holds the declared parameters of the optimizer, checked and complete.
	Values
}

// State is an optimizer's memory for one tensor: float values by name, for
// example the moments m and v.
type State map[string]program.Value

// UpdateInput is what an update may read.
type UpdateInput struct {
	// X is the parameter before the step, after weight decay.
	X program.Value
	// Gradient has the tensor's shape; it is already clipped.
	Gradient program.Value
	// Step is the number t of this update as a scalar float, from 1.
	Step program.Value
	// State is what the previous update, or Init, returned.
	State State
}

// Names of the inputs and outputs of an optimizer's programs; a state tensor s
// appears as StatePrefix + s.
const (
	InputGradient   = "gradient"
	InputStep       = "step"
	OutputDirection = "direction"
	StatePrefix     = "state."
)

// StateTensor is the name and shape of one float tensor of an optimizer's state.
type StateTensor struct {
	Name  string
	Shape []int
}

// OptimizerProgram is an optimizer's answer for one tensor in the form that
// crosses the process boundary. Init maps x to the state; Update maps x,
// gradient, step and the state to direction and the next state.
type OptimizerProgram struct {
	Init, Update *program.Program
	// State lists the state tensors in the order of their names.
	State []StateTensor
}

// BuildOptimizer calls o for one tensor and returns its checked programs. Errors
// of the author's code, panics included, come back as errors that name the tensor.
func BuildOptimizer(o Optimizer, t Tensor) (out OptimizerProgram, err error) {
	var name string
	defer func() {
		if r := recover(); r != nil {
			err = panicError(KindOptimizer, name, t.Name, r)
		}
	}()
	name = o.Describe().Name
	out, err = buildOptimizer(o, name, t)
	if err != nil {
		return OptimizerProgram{}, &SiteError{Kind: KindOptimizer, Plugin: name, Site: t.Name, Err: err}
	}
	return out, nil
}

func buildOptimizer(o Optimizer, name string, t Tensor) (out OptimizerProgram, err error) {
	b := program.NewBuilder(name + "/init/" + t.Name)
	x := b.Input(InputX, program.FloatType(t.Shape...))
	state, err := o.Init(b, x, t)
	if err != nil {
		return out, err
	}
	for _, s := range sortedNames(state) {
		out.State = append(out.State, StateTensor{Name: s, Shape: state[s].Shape()})
		b.Output(StatePrefix+s, state[s])
	}
	if len(state) > 0 { // a stateless optimizer has no init program
		if out.Init, err = b.Build(); err != nil {
			return out, fmt.Errorf("init: %w", err)
		}
	}
	b = program.NewBuilder(name + "/update/" + t.Name)
	in := UpdateInput{
		X:        b.Input(InputX, program.FloatType(t.Shape...)),
		Gradient: b.Input(InputGradient, program.FloatType(t.Shape...)),
		Step:     b.Input(InputStep, program.FloatType()),
		State:    State{},
	}
	for _, s := range out.State {
		in.State[s.Name] = b.Input(StatePrefix+s.Name, program.FloatType(s.Shape...))
	}
	u, next, err := o.Update(b, in, t)
	if err != nil {
		return out, err
	}
	b.Output(OutputDirection, u)
	for _, s := range sortedNames(next) {
		b.Output(StatePrefix+s, next[s])
	}
	if out.Update, err = b.Build(); err != nil {
		return out, fmt.Errorf("update: %w", err)
	}
	return out, out.Check(t.Shape)
}

// Check verifies the signatures of valid programs for a tensor of the given shape.
func (o OptimizerProgram) Check(shape []int) error {
	if o.Update == nil {
		return errors.New("the update program is absent")
	}
	tensor := program.FloatType(shape...)
	inputs := []program.Input{{Name: InputX, Type: tensor}, {Name: InputGradient, Type: tensor}, {Name: InputStep, Type: program.FloatType()}}
	outputs := []string{OutputDirection}
	for i, s := range o.State {
		if i > 0 && o.State[i-1].Name >= s.Name {
			return fmt.Errorf("state tensors are not in the order of their names")
		}
		inputs = append(inputs, program.Input{Name: StatePrefix + s.Name, Type: program.FloatType(s.Shape...)})
		outputs = append(outputs, StatePrefix+s.Name)
	}
	if (o.Init == nil) != (len(o.State) == 0) {
		return fmt.Errorf("the init program and the list of state tensors disagree")
	}
	if o.Init != nil {
		if err := checkSignature("init", o.Init, inputs[:1], outputs[1:], inputs[3:]); err != nil {
			return err
		}
	}
	want := append([]program.Input{{Type: tensor}}, inputs[3:]...)
	return checkSignature("update", o.Update, inputs, outputs, want)
}

// checkSignature compares a program's inputs, the names of its outputs and their types.
func checkSignature(which string, p *program.Program, inputs []program.Input, outputs []string, types []program.Input) error {
	if !slices.EqualFunc(p.Inputs, inputs, func(a, b program.Input) bool { return a.Name == b.Name && a.Type.Equal(b.Type) }) {
		return fmt.Errorf("the %s program must take %s", which, describeInputs(inputs))
	}
	if len(p.Outputs) != len(outputs) {
		return fmt.Errorf("the %s program must return %s", which, strings.Join(outputs, ", "))
	}
	for i, name := range outputs {
		o := p.Outputs[i]
		if o.Name != name {
			return fmt.Errorf("the %s program must return %s", which, strings.Join(outputs, ", "))
		}
		if t := p.TypeOf(o.Value); !t.Equal(types[i].Type) {
			return fmt.Errorf("%s: output %s is %s, must be %s", which, name, t, types[i].Type)
		}
	}
	return nil
}

func describeInputs(inputs []program.Input) string {
	parts := make([]string, len(inputs))
	for i, in := range inputs {
		parts[i] = in.Name + ": " + in.Type.String()
	}
	return strings.Join(parts, ", ")
}

func sortedNames(s State) []string {
	names := make([]string, 0, len(s))
	for n := range s {
		names = append(names, n)
	}
	slices.Sort(names)
	return names
}
