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
// p appears as TrainedPrefix + p, a state tensor s as KeptPrefix + s.
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

// Quantizer is a quantizer's answer for one site in the form that crosses
// the process boundary.
type Quantizer struct {
	// Program is the one of training. It takes x, the trained parameters and the state in
	// their order, and those of noise, shared_noise and step that it uses, in this order;
	// it returns value and surrogate, optionally codes, scale and mask.
	Program *program.Program
	// Evaluate is the program of evaluation, with the same outputs, if it is another one
	// than Program; see [Quantizer.ForEvaluation]. It takes x, the trained
	// parameters and the state.
	Evaluate    *program.Program
	Homogeneous bool
	// Trained lists the trained parameters in the order of their names.
	Trained []Tensor
	// Init maps x, and those of the statistics of columns that it uses, to the initial
	// trained parameters; nil exactly when there are none.
	Init *program.Program
	// State lists the state tensors in the order of their names. InitState maps what Init takes to
	// the initial state, and Next maps what Program takes to the state after a step; both are nil
	// exactly when there is no state, or when searches find it.
	State           []Tensor
	InitState, Next *program.Program
	// SearchEvery is not 0 if searches of a Searcher find the state: before the first step
	// and after each step whose number it divides.
	SearchEvery int
	// Backward maps what Program takes, and after the state d.value, the gradient with respect
	// to value, to d.x and d.trained.NAME, the gradients with respect to x and the trained
	// parameters. It is nil when they are those of the surrogate.
	Backward *program.Program
	// Unpack maps codes and scale, as both programs return them, to value; nil when
	// the quantizer is not a Packer.
	Unpack *program.Program
	// Grid says what the codes and scales of evaluation stand for; the zero Grid says nothing.
	Grid Grid
}

// ForEvaluation is the answer with the program of evaluation instead of that of
// training, and without Next and Backward: what quantizes a model that is not being trained.
func (q Quantizer) ForEvaluation() Quantizer {
	q.Next, q.Backward = nil, nil
	if q.Evaluate != nil {
		q.Program, q.Evaluate = q.Evaluate, nil
	}
	return q
}

// Takes reports whether one of the programs of training takes an input that changes from
// step to step: [InputNoise], [InputSharedNoise] or [InputStep].
func (q Quantizer) Takes(input string) bool {
	return slices.ContainsFunc([]*program.Program{q.Program, q.Next, q.Backward}, func(p *program.Program) bool {
		return p != nil && p.Input(input) >= 0
	})
}

// Draws reports whether one of the programs of training takes noise.
func (q Quantizer) Draws() bool { return q.Takes(InputNoise) || q.Takes(InputSharedNoise) }

// Split divides the program of training into what runs forward and returns value, and what
// runs backward from the gradient with respect to value, the last of its inputs, and
// returns d.x and d.trained.NAME; see [autodiff.Split].
func (q Quantizer) Split() (*autodiff.Partition, error) {
	if q.Backward != nil {
		return autodiff.SplitBy(q.Program, []string{OutputValue}, q.Backward, InputDY)
	}
	return autodiff.Split(q.Program, []string{OutputValue}, OutputSurrogate, q.Differentiable()...)
}

// Reverse is the backward pass from the beginning, as one program: it takes what Program
// takes, or a part of it, and [InputDY], and returns d.x and d.trained.NAME.
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

// Differentiable names the inputs with respect to which there are gradients: x and the
// trained parameters.
func (q Quantizer) Differentiable() []string {
	names := []string{InputX}
	for _, t := range q.Trained {
		names = append(names, TrainedPrefix+t.Name)
	}
	return names
}

// Calibrated reports whether initial values are computed from statistics of columns.
func (q Quantizer) Calibrated() bool {
	for _, p := range []*program.Program{q.Init, q.InitState} {
		if p != nil && len(p.Inputs) > 1 {
			return true
		}
	}
	return false
}

// Programs yields the programs that are present, with their names: quantize, evaluate,
// init, unpack, init_state, next, backward, and constrain with the name of a trained parameter.
func (q Quantizer) Programs() iter.Seq2[string, *program.Program] {
	list := []named{{"quantize", q.Program}, {"evaluate", q.Evaluate}, {"init", q.Init}, {"unpack", q.Unpack},
		{"init_state", q.InitState}, {"next", q.Next}, {"backward", q.Backward}}
	for _, t := range q.Trained {
		list = append(list, named{"constrain " + t.Name, t.Constrain})
	}
	return present(list)
}

// Check verifies the signatures of valid programs for a site of the given shape:
//
//   - The input x and the outputs value and surrogate are floats of that shape;
//     codes are numbers and mask a bool, of that shape; scale is a float; there
//     is no other output.
//   - The trained parameters are in order; they are inputs of the programs and
//     outputs of Init. If there are any, the surrogate depends on each of them, unless
//     there is Backward, and Homogeneous is not promised.
//   - The state tensors are in order; they are inputs of Program, Evaluate and Next,
//     and outputs of InitState and Next. If there are any, Homogeneous is not
//     promised.
//   - If searches find the state, there is some, and neither InitState nor Next.
//   - With Backward, which takes what Program may take and d.value, and returns d.x and
//     d.trained.NAME, the surrogate is x.
//   - If the program takes noise, shared_noise or step, there is a program of
//     evaluation, which takes none of them.
//   - Init and InitState take x, and may take statistics of columns ([ColumnInputs]).
//   - Unpack takes codes and scale, which both programs return with the same
//     types, and returns value.
//   - With a grid, the program of evaluation returns codes and scale.
//   - No program factorizes.
func (q Quantizer) Check(shape []int) error {
	if q.Program == nil {
		return errors.New("the program is absent")
	}
	x := program.Input{Name: InputX, Type: program.FloatType(shape...)}
	trained, kept := ports(TrainedPrefix, q.Trained), ports(KeptPrefix, q.State)
	fixed := slices.Concat([]program.Input{x}, trained, kept)
	s := signature{name: "quantizer's", inputs: fixed, optional: StepInputs}
	err := cmp.Or( // the first error
		listRules{"trained parameter", true, false, "a trained parameter"}.check(q.Trained),
		listRules{"state tensor", false, true, "state of a quantizer"}.check(q.State),
		s.checkInputs(q.Program), CheckOutputs(q.Program, shape), s.checkOps(q.Program),
		q.checkEvaluate(fixed, shape), q.checkPromises(trained))
	if err != nil {
		return err
	}
	gradients := slices.Clone(fixed[:1+len(trained)])
	for i := range gradients {
		gradients[i].Name = autodiff.Prefix + gradients[i].Name
	}
	dy := program.Input{Name: InputDY, Type: x.Type}
	packed, err := q.packed()
	if err != nil {
		return err
	}
	list := []wantedProgram{
		{q.Init, len(trained) > 0, signature{name: "init", inputs: fixed[:1], optional: ColumnInputs(shape), outputs: trained, when: "there are trained parameters"}},
		{q.Backward, q.Backward != nil, signature{name: "backward", inputs: append(slices.Clone(fixed), dy), optional: StepInputs, outputs: gradients}},
		{q.Unpack, q.Unpack != nil, signature{name: "unpack", inputs: packed, outputs: []program.Input{{Name: OutputValue, Type: x.Type}}}},
	}
	if q.SearchEvery == 0 {
		const when = "there is state"
		list = append(list,
			wantedProgram{q.InitState, len(kept) > 0, signature{name: "init_state", inputs: fixed[:1], optional: ColumnInputs(shape), outputs: kept, when: when}},
			wantedProgram{q.Next, len(kept) > 0, signature{name: "next", inputs: fixed, optional: StepInputs, outputs: kept, when: when}})
	}
	for i, t := range q.Trained {
		port := trained[i : i+1]
		list = append(list, wantedProgram{t.Constrain, t.Constrain != nil, signature{name: "constrain " + t.Name, inputs: port, outputs: port}})
	}
	return checkAll(list)
}

// StepInputs are the inputs that change from step to step.
var StepInputs = []program.Input{
	{Name: InputNoise, Type: keyType},
	{Name: InputSharedNoise, Type: keyType},
	{Name: InputStep, Type: program.FloatType()},
}

// ColumnInputs are the inputs that programs of initial values may take after x, of the given shape:
// the statistics of Columns, in this order.
func ColumnInputs(shape []int) (list []program.Input) {
	columns := slices.Repeat([]int{1}, len(shape))
	if n := len(shape); n > 0 {
		columns[n-1] = shape[n-1]
	}
	for _, name := range []string{InputActivationsMax, InputActivationsMean, InputWeightsMax, InputWeightsMean} {
		list = append(list, program.Input{Name: name, Type: program.FloatType(columns...)})
	}
	return list
}

// keyType is the type of a key for random bits.
var keyType = program.Type{DType: program.Uint, Shape: []int{2}}

// checkEvaluate verifies the program of evaluation. It must be there if that of training changes
// from step to step.
func (q Quantizer) checkEvaluate(inputs []program.Input, shape []int) error {
	changes := slices.ContainsFunc(StepInputs, func(in program.Input) bool { return q.Program.Input(in.Name) >= 0 })
	switch {
	case q.Evaluate == nil && changes:
		return errors.New("the program takes what changes from step to step (noise, shared_noise or step), but there is no program for evaluation, which has none of these")
	case q.Evaluate == nil:
		return nil
	}
	s := signature{name: "evaluate", inputs: inputs}
	if err := cmp.Or(s.checkInputs(q.Evaluate), CheckOutputs(q.Evaluate, shape), s.checkOps(q.Evaluate)); err != nil {
		return fmt.Errorf("for evaluation: %w", err)
	}
	return nil
}

// packed are the ports of codes and scale, which are the same in training and evaluation; nil if
// nothing needs them.
func (q Quantizer) packed() ([]program.Input, error) {
	if q.Grid != (Grid{}) {
		if _, err := PackedPorts(q.ForEvaluation().Program); err != nil {
			return nil, errors.New("there is a grid, but no codes and scales whose numbers it says: " +
				"return both, or no grid")
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
			return nil, fmt.Errorf("output %s is %s in training and %s in evaluation: unpack needs the same type",
				port.Name, port.Type, other[i].Type)
		}
	}
	return packed, nil
}

// checkPromises verifies what goes together besides signatures.
func (q Quantizer) checkPromises(trained []program.Input) error {
	surrogate, _ := q.Program.Output(OutputSurrogate)
	switch {
	case q.Homogeneous && len(q.Trained) > 0:
		return fmt.Errorf("Q(c·x) = c·Q(x) is promised, which cannot hold with the trained parameter %s: leave homogeneous false", q.Trained[0].Name)
	case q.Homogeneous && len(q.State) > 0:
		return fmt.Errorf("Q(c·x) = c·Q(x) is promised, which cannot hold with the state %s: leave homogeneous false", q.State[0].Name)
	case q.Backward != nil && int(surrogate) != q.Program.Input(InputX):
		return errors.New("there are a surrogate and a backward program: leave one of them out")
	}
	for _, in := range trained {
		i := q.Program.Input(in.Name)
		if q.Backward == nil && (i < 0 || !autodiff.Reaches(q.Program, surrogate, i)) {
			return fmt.Errorf("%s gets no gradient from the surrogate, which does not depend on it, or only where gradients are zero", in.Name)
		}
	}
	switch {
	case q.SearchEvery == 0:
		return nil
	case q.SearchEvery < 0 || q.SearchEvery > math.MaxInt32:
		return fmt.Errorf("a search follows after %d steps: want 1 to %d", q.SearchEvery, math.MaxInt32)
	case len(q.State) == 0:
		return errors.New("searches find the state, but there is none")
	case q.InitState != nil || q.Next != nil:
		return errors.New("searches find the state, but there is a program for it, too")
	}
	return nil
}

// CheckOutputs verifies names and types of the outputs.
func CheckOutputs(p *program.Program, shape []int) error {
	want := program.FloatType(shape...)
	for _, name := range []string{OutputValue, OutputSurrogate} {
		id, ok := p.Output(name)
		if !ok {
			return fmt.Errorf("a quantizer's program needs the output %s", name)
		}
		if t := p.TypeOf(id); !t.Equal(want) {
			return fmt.Errorf("output %s is %s: it must have the type of x, %s", name, t, want)
		}
	}
	for _, o := range p.Outputs {
		if err := checkOptionalOutput(o.Name, p.TypeOf(o.Value), shape); err != nil {
			return err
		}
	}
	return nil
}

func checkOptionalOutput(name string, t program.Type, shape []int) error {
	shaped := slices.Equal(t.Shape, shape)
	switch name {
	case OutputValue, OutputSurrogate:
	case OutputCodes:
		if !shaped || t.DType == program.Bool {
			return fmt.Errorf("output %s is %s: it must hold numbers in the shape of x, %v", name, t, shape)
		}
	case OutputMask:
		if !shaped || t.DType != program.Bool {
			return fmt.Errorf("output %s is %s: it must be bool in the shape of x, %v", name, t, shape)
		}
	case OutputScale:
		if t.DType != program.Float {
			return fmt.Errorf("output %s is %s: it must be float", name, t)
		}
	default:
		return fmt.Errorf("output %s is unknown: there are value, surrogate, codes, scale and mask", name)
	}
	return nil
}

// PackedPorts are codes and scale as a quantizer's program returns them.
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
