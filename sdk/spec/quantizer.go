package spec

import (
	"cmp"
	"errors"
	"fmt"
	"iter"
	"math"
	"slices"

	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/autodiff"
	"github.com/cage-qat/cage/sdk/program/transform"
)

// Names of the inputs and outputs of a quantizer's programs; a trained parameter
// p is named TrainedPrefix + p, a state tensor s KeptPrefix + s.
const (
	InputX           = "x"
	InputNoise       = "noise"
	InputSharedNoise = "shared_noise"
	InputDY          = autodiff.Prefix + OutputValue
	OutputValue      = "value"
	OutputSurrogate  = "surrogate"
	OutputCodes      = "codes"
	OutputScale      = "scale"
	OutputMask       = "mask"
	TrainedPrefix    = "trained."
	KeptPrefix       = "kept."

	InputActivationsMax  = "activations.max"
	InputActivationsMean = "activations.mean"
	InputWeightsMax      = "weights.max"
	InputWeightsMean     = "weights.mean"
)

// Quantizer is a quantizer's answer for one site, as it is sent from the plugin to the host.
type Quantizer struct {
	// Program is the training program. Its inputs are x, the trained parameters, the state,
	// and those of [StepInputs] that it uses, in this order; its outputs are
	// value and surrogate, optionally codes, scale and mask.
	Program *program.Program
	// Evaluate is the evaluation program if it differs from Program, else nil; see
	// [Quantizer.ForEvaluation]. Its inputs are x, the trained parameters and the state; its
	// outputs are those of Program.
	Evaluate    *program.Program
	Homogeneous bool
	// Trained lists the trained parameters, sorted by name.
	Trained []Tensor
	// Init maps x, and the column statistics that it uses, to the initial trained
	// parameters; nil exactly when there are none.
	Init *program.Program
	// State lists the state tensors, sorted by name. InitState maps the inputs of Init to the
	// initial state, and Next maps the inputs of Program to the state after a step; both are nil
	// exactly when there is no state, or when searches compute it.
	State           []Tensor
	InitState, Next *program.Program
	// SearchEvery is not 0 if searches of a Searcher compute the state: before the first step
	// and after each step whose number is a multiple of it.
	SearchEvery int
	// Backward maps the inputs of Program, with d.value (the gradient with respect to value)
	// inserted after the state, to d.x and d.trained.NAME, the gradients with respect to x and
	// the trained parameters. It is nil if the surrogate is differentiated instead.
	Backward *program.Program
	// Unpack maps codes and scale, as both programs return them, to value; nil when
	// the quantizer is not a Packer.
	Unpack *program.Program
	// Grid defines the meaning of the codes and scales of evaluation; the zero Grid means unknown.
	Grid Grid
}

// ForEvaluation returns q with the evaluation program as Program, and without Next and
// Backward: the quantizer of a model that is not being trained.
func (q Quantizer) ForEvaluation() Quantizer {
	q.Next, q.Backward = nil, nil
	if q.Evaluate != nil {
		q.Program, q.Evaluate = q.Evaluate, nil
	}
	return q
}

// HasInput reports whether one of the training programs has the given input of [StepInputs].
func (q Quantizer) HasInput(input string) bool {
	return haveInput(input, q.Program, q.Next, q.Backward)
}

// Draws reports whether one of the training programs takes noise.
func (q Quantizer) Draws() bool { return q.HasInput(InputNoise) || q.HasInput(InputSharedNoise) }

// Split divides the training program into a forward program, which returns value, and a
// backward program, which takes the gradient with respect to value as its last input and
// returns d.x and d.trained.NAME; see [autodiff.Split].
func (q Quantizer) Split() (*autodiff.Partition, error) {
	if q.Backward != nil {
		return autodiff.SplitBy(q.Program, []string{OutputValue}, q.Backward, InputDY)
	}
	return autodiff.Split(q.Program, []string{OutputValue}, OutputSurrogate, q.Differentiable()...)
}

// Reverse returns the backward pass as one program that recomputes the forward pass: it takes
// inputs of Program, all or some, and [InputDY], and returns d.x and d.trained.NAME.
func (q Quantizer) Reverse() (*program.Program, error) {
	if q.Backward != nil {
		return q.Backward, nil
	}
	p, err := autodiff.VJP(q.Program, OutputSurrogate, q.Differentiable()...)
	if err != nil {
		return nil, err
	}
	inputs := transform.Arguments(p)
	inputs[len(inputs)-1].Name = InputDY
	return transform.Extract(p, p.Name, inputs, p.Outputs)
}

// Differentiable returns the names of the inputs that have gradients: x and the trained parameters.
func (q Quantizer) Differentiable() []string {
	names := []string{InputX}
	for _, t := range q.Trained {
		names = append(names, TrainedPrefix+t.Name)
	}
	return names
}

// Calibrated reports whether initial values are computed from column statistics.
func (q Quantizer) Calibrated() bool {
	reads := func(p *program.Program) bool { return p != nil && len(p.Inputs) > 1 }
	return reads(q.Init) || reads(q.InitState)
}

// Programs yields the programs that are not nil, with their names: quantize, evaluate, init,
// unpack, init_state, next, backward, and "constrain NAME" for trained parameters.
func (q Quantizer) Programs() iter.Seq2[string, *program.Program] {
	list := []named{{"quantize", q.Program}, {"evaluate", q.Evaluate}, {"init", q.Init},
		{"unpack", q.Unpack}, {"init_state", q.InitState}, {"next", q.Next}, {"backward", q.Backward}}
	for _, t := range q.Trained {
		list = append(list, named{"constrain " + t.Name, t.Constrain})
	}
	return present(list)
}

// Check verifies valid programs for a site of the given shape: their signatures, as the fields
// define them, that all lists are sorted by name, that trained parameters have gradients, and that
// no promise contradicts the programs.
func (q Quantizer) Check(shape []int) error {
	if q.Program == nil {
		return errors.New("the program is absent")
	}
	x := float(InputX, shape...)
	trained, state := ports(TrainedPrefix, q.Trained), ports(KeptPrefix, q.State)
	fixed := slices.Concat([]program.Input{x}, trained, state)
	s := signature{name: "quantizer's", program: q.Program, inputs: fixed, optional: StepInputs}
	err := cmp.Or( // the first error
		listRules{"trained parameter", true, false, "a trained parameter"}.check(q.Trained),
		listRules{"state tensor", false, true, "state of a quantizer"}.check(q.State),
		s.checkInputs(), CheckOutputs(q.Program, shape), s.checkOps(),
		q.checkEvaluate(fixed, shape), q.checkPromises(trained))
	if err != nil {
		return err
	}
	gradients := slices.Clone(fixed[:1+len(trained)])
	for i := range gradients {
		gradients[i].Name = autodiff.Prefix + gradients[i].Name
	}
	packed, err := q.packed()
	if err != nil {
		return err
	}
	list := []signature{
		{name: "init", program: q.Init, wanted: len(trained) > 0, inputs: fixed[:1],
			optional: ColumnInputs(shape), outputs: trained, when: "there are trained parameters"},
		{name: "backward", program: q.Backward, wanted: q.Backward != nil,
			inputs:   append(slices.Clone(fixed), float(InputDY, shape...)),
			optional: StepInputs, outputs: gradients},
		{name: "unpack", program: q.Unpack, wanted: q.Unpack != nil, inputs: packed,
			outputs: []program.Input{float(OutputValue, shape...)}},
	}
	if q.SearchEvery == 0 {
		list = append(list,
			signature{name: "init_state", program: q.InitState, wanted: len(state) > 0,
				inputs: fixed[:1], optional: ColumnInputs(shape), outputs: state, when: "there is state"},
			signature{name: "next", program: q.Next, wanted: len(state) > 0, inputs: fixed,
				optional: StepInputs, outputs: state, when: "there is state"})
	}
	for i, t := range q.Trained {
		port := trained[i : i+1]
		list = append(list, signature{name: "constrain " + t.Name, program: t.Constrain,
			wanted: t.Constrain != nil, inputs: port, outputs: port})
	}
	return checkAll(list)
}

// StepInputs lists the per-step inputs.
var StepInputs = []program.Input{
	{Name: InputNoise, Type: keyType},
	{Name: InputSharedNoise, Type: keyType},
	float(InputStep),
	float(InputSteps),
}

// ColumnInputs returns the column statistics that Init and InitState may take, in this order, after
// x, which has the given shape.
func ColumnInputs(shape []int) []program.Input {
	columns := slices.Repeat([]int{1}, len(shape))
	if n := len(shape); n > 0 {
		columns[n-1] = shape[n-1]
	}
	return []program.Input{
		float(InputActivationsMax, columns...), float(InputActivationsMean, columns...),
		float(InputWeightsMax, columns...), float(InputWeightsMean, columns...),
	}
}

var keyType = program.Type{DType: program.Uint, Shape: []int{2}}

// checkEvaluate verifies the evaluation program, which is required if the training program takes
// per-step inputs.
func (q Quantizer) checkEvaluate(inputs []program.Input, shape []int) error {
	if q.Evaluate == nil {
		for _, in := range StepInputs {
			if q.Program.Input(in.Name) >= 0 {
				return fmt.Errorf("the program takes %s, which evaluation does not have, "+
					"but there is no program for evaluation", in.Name)
			}
		}
		return nil
	}
	s := signature{name: "evaluate", program: q.Evaluate, inputs: inputs}
	err := cmp.Or(s.checkInputs(), CheckOutputs(q.Evaluate, shape), s.checkOps())
	if err != nil {
		return fmt.Errorf("for evaluation: %w", err)
	}
	return nil
}

// packed checks the grid and returns the inputs of Unpack for codes and scale, or nil if there is
// no Unpack. Their types must be the same in training and evaluation.
func (q Quantizer) packed() ([]program.Input, error) {
	if q.Grid != (Grid{}) {
		if _, err := PackedPorts(q.ForEvaluation().Program); err != nil {
			return nil, errors.New("a Grid is declared without Codes and Scale: return both, or no Grid")
		}
		if err := q.Grid.check(); err != nil {
			return nil, err
		}
	}
	if q.Unpack == nil {
		return nil, nil
	}
	packed, err := PackedPorts(q.Program)
	if err != nil || q.Evaluate == nil {
		return packed, err
	}
	other, err := PackedPorts(q.Evaluate)
	if err != nil {
		return nil, fmt.Errorf("for evaluation: %w", err)
	}
	for i, port := range packed {
		if !port.Type.Equal(other[i].Type) {
			return nil, fmt.Errorf("output %s is %s in training and %s in evaluation: "+
				"unpack needs the same type", port.Name, port.Type, other[i].Type)
		}
	}
	return packed, nil
}

const notHomogeneous = "Q(c·x) = c·Q(x) is promised (Homogeneous), which cannot hold with"

func (q Quantizer) checkPromises(trained []program.Input) error {
	surrogate, _ := q.Program.Output(OutputSurrogate)
	switch {
	case q.Homogeneous && len(q.Trained) > 0:
		return fmt.Errorf("%s the trained parameter %s", notHomogeneous, q.Trained[0].Name)
	case q.Homogeneous && len(q.State) > 0:
		return fmt.Errorf("%s the state %s", notHomogeneous, q.State[0].Name)
	case q.Backward != nil && int(surrogate) != q.Program.Input(InputX):
		return errors.New("got both a surrogate and a backward program, want only one")
	}
	for _, in := range trained {
		i := q.Program.Input(in.Name)
		if q.Backward == nil && (i < 0 || !autodiff.Reaches(q.Program, surrogate, i)) {
			return fmt.Errorf("%s gets no gradient from the surrogate, which does not depend on it, "+
				"or only where gradients are zero", in.Name)
		}
	}
	switch {
	case q.SearchEvery == 0:
		return nil
	case q.SearchEvery < 0 || q.SearchEvery > math.MaxInt32:
		return fmt.Errorf("the search interval is %d steps, want 1 to %d", q.SearchEvery, math.MaxInt32)
	case len(q.State) == 0:
		return errors.New("got searches without any state to compute")
	case q.InitState != nil || q.Next != nil:
		return errors.New("got both searches and programs for the state, want only one")
	}
	return nil
}

// CheckOutputs verifies names and types of the outputs of a program for x of the given shape.
func CheckOutputs(p *program.Program, shape []int) error {
	want := program.FloatType(shape...)
	for _, name := range []string{OutputValue, OutputSurrogate} {
		id, ok := p.Output(name)
		if !ok {
			return fmt.Errorf("the quantizer's program has no output %s", name)
		}
		if t := p.TypeOf(id); !t.Equal(want) {
			return fmt.Errorf("output %s is %s, want the type of x, %s", name, t, want)
		}
	}
	for _, o := range p.Outputs {
		t := p.TypeOf(o.Value)
		shaped, isBool := slices.Equal(t.Shape, shape), t.DType == program.Bool
		switch name := o.Name; {
		case name == OutputValue || name == OutputSurrogate:
		case name == OutputCodes && (!shaped || isBool):
			return fmt.Errorf("output %s is %s, want numbers in the shape of x, %v", name, t, shape)
		case name == OutputMask && !(shaped && isBool):
			return fmt.Errorf("output %s is %s, want bool in the shape of x, %v", name, t, shape)
		case name == OutputScale && t.DType != program.Float:
			return fmt.Errorf("output %s is %s, want float", name, t)
		case !slices.Contains([]string{OutputCodes, OutputMask, OutputScale}, name):
			return fmt.Errorf("output %s is unknown: want value, surrogate, codes, scale or mask", name)
		}
	}
	return nil
}

// PackedPorts returns the names and types of the outputs codes and scale of a quantizer's program.
func PackedPorts(quantize *program.Program) ([]program.Input, error) {
	var ports []program.Input
	for _, name := range []string{OutputCodes, OutputScale} {
		id, ok := quantize.Output(name)
		if !ok {
			return nil, fmt.Errorf("a quantizer that can unpack needs the output %s", name)
		}
		ports = append(ports, program.Input{Name: name, Type: quantize.TypeOf(id)})
	}
	return ports, nil
}
