package fakequant

import (
	"fmt"
	"slices"

	"github.com/cage-qat/cage/host/compute/calls"
	"github.com/cage-qat/cage/host/compute/passes"
	"github.com/cage-qat/cage/internal/lists"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/autodiff"
	"github.com/cage-qat/cage/sdk/program/transform"
	"github.com/cage-qat/cage/sdk/spec"
)

// Quantizer is the fake quantization of one tensor in programs. Its program is split into a
// forward and a backward part, which may be in different programs.
type Quantizer struct {
	spec          spec.Quantizer
	parts         *autodiff.Partition
	call, forward *program.Call // with and without an adjoint
	next          *program.Call // of the next state; nil if there is none
}

// New prepares a quantizer's training program, which must be valid. The forward part
// returns the value; the backward part is the quantizer's own, or else derived from the surrogate.
// Kernels store all floats except codes in float32.
func New(q spec.Quantizer) (*Quantizer, error) {
	parts, err := q.Split()
	if err != nil {
		return nil, fmt.Errorf("backward pass of the quantizer: %w", err)
	}
	call := &program.Call{Name: calls.Quantize, Setting: q.Program.Name, Adjoint: parts.Backward}
	if call.Meaning, err = withInputsOf(parts.Forward, parts.Residuals); err != nil {
		return nil, err
	}
	forward := &program.Call{Name: call.Name, Setting: call.Setting, Meaning: parts.Forward}
	var next *program.Call
	if q.Next != nil {
		next = &program.Call{Name: "next state", Setting: q.Program.Name, Meaning: q.Next}
	}
	return &Quantizer{q, parts, call, forward, next}, nil
}

// Trained lists the quantizer's trained parameters. Most quantizers have none.
func (q *Quantizer) Trained() []spec.Tensor { return q.spec.Trained }

// State lists the tensors that the quantizer carries from step to step. Most quantizers have none.
func (q *Quantizer) State() []spec.Tensor { return q.spec.State }

// Takes reports whether the quantizer takes the named input of [spec.StepInputs].
func (q *Quantizer) Takes(input string) bool { return q.spec.HasInput(input) }

// Calibrated reports whether Init or InitState reads column statistics.
func (q *Quantizer) Calibrated() bool { return q.spec.Calibrated() }

// withInputsOf returns the forward part with those inputs, too, that only the backward part reads.
func withInputsOf(forward *program.Program, residuals []autodiff.Residual) (*program.Program,
	error) {
	b := program.NewSimplifier(forward.Name)
	in := transform.Inputs(b, forward, nil)[:len(forward.Inputs)]
	for _, r := range residuals {
		if r.Input && forward.Input(r.Name) < 0 {
			b.Input(r.Name, r.Type)
		}
	}
	out := transform.Inline(b, forward, in...)
	for _, o := range forward.Outputs {
		b.Output(o.Name, out[o.Name])
	}
	return b.Build()
}

// Call returns the quantizer as a call for programs, with an adjoint of its own if a gradient is
// wanted. The first result is Q(x), the others are what the adjoint reads.
func (q *Quantizer) Call(gradient bool) *program.Call {
	if gradient {
		return q.call
	}
	return q.forward
}

// NextCall returns the call of the state after a step; nil if the quantizer updates no state.
func (q *Quantizer) NextCall() *program.Call { return q.next }

// Rotated is a quantizer whose values stay rotated: it returns H·Q(x) and takes gradients with
// respect to H·Q(x). H rotates each block of Block elements of a row.
type Rotated struct {
	Quantizer *Quantizer
	Block     int
	// Saved is the number of rotations, counted in whole tensors, that a forward and a backward
	// pass save together. It is negative if they need more.
	Saved float64
}

// Given holds inputs of a quantizer besides x, by their names: trained parameters, the state after
// the last step, keys for random bits, the numbers of the step and of all steps, or column
// statistics, [sdk.Columns], of shape [1, columns].
type Given map[string]program.Value

// inline adds p, a program of x and given inputs, to that of x, and returns its outputs of the
// listed tensors; nil if p is nil.
func inline(p *program.Program, x program.Value, given Given, prefix string,
	list []spec.Tensor) []program.Value {
	if p == nil {
		return nil
	}
	out := transform.Inline(x.Builder(), p, given.after(x, p)...)
	return lists.Map(list, func(t spec.Tensor) program.Value { return out[prefix+t.Name] })
}

// after returns the inputs of p, of which x is the first.
func (g Given) after(x program.Value, p *program.Program) []program.Value {
	in := []program.Value{x}
	for _, input := range p.Inputs[1:] {
		in = append(in, g[input.Name])
	}
	return in
}

// ColumnsOf computes the column statistics of one operand x of a product, [rows, columns]. The keys
// are the names of the inputs for activations if activations is set, else for weights.
func ColumnsOf(x program.Value, activations bool) Given {
	largest, mean := spec.InputWeightsMax, spec.InputWeightsMean
	if activations {
		largest, mean = spec.InputActivationsMax, spec.InputActivationsMean
	}
	a, shape := x.Abs(), x.Shape()
	return Given{largest: a.ReduceMax(0).Reshape(1, shape[1]),
		mean: a.ReduceSum(0).Scale(1/float64(shape[0])).Reshape(1, shape[1])}
}

// Init returns the initial values of the trained parameters for x.
func (q *Quantizer) Init(x program.Value, columns Given) []program.Value {
	return inline(q.spec.Init, x, columns, spec.TrainedPrefix, q.Trained())
}

// InitState returns the initial state for x.
func (q *Quantizer) InitState(x program.Value, columns Given) []program.Value {
	return inline(q.spec.InitState, x, columns, spec.KeptPrefix, q.State())
}

// Next returns the state after a step that quantizes x; nil if the quantizer updates no state.
func (q *Quantizer) Next(x program.Value, given Given) []program.Value {
	return inline(q.spec.Next, x, given, spec.KeptPrefix, q.State())
}

// Evaluation returns the quantizer for evaluation, whose only per-step input is the state, which it
// does not update. It returns nil if evaluation quantizes in the same way as training.
func (q *Quantizer) Evaluation() (*Quantizer, error) {
	if q.spec.Evaluate == nil && q.spec.Next == nil {
		return nil, nil
	}
	return New(q.spec.ForEvaluation())
}

// Forward returns Q(x), the residuals that Backward needs besides x, the given inputs and Q(x), and
// the codes of Q(x) if coded is set, for which [Quantizer.CodeShapes] must return shapes.
func (q *Quantizer) Forward(x program.Value, given Given, coded bool) (value program.Value,
	residuals, codes []program.Value) {
	p := q.parts.Forward
	if coded {
		p, _ = passes.FactorRows(p, spec.OutputValue)
	}
	out := calls.Rows(p, calls.RowsOf(q.spec.Program), given.after(x, p)...)
	if coded {
		codes = lists.Map(codeOutputs, func(name string) program.Value { return out[name] })
	}
	for _, r := range q.parts.Residuals {
		if !r.Input && r.Name != spec.OutputValue {
			residuals = append(residuals, out[r.Name])
		}
	}
	return out[spec.OutputValue], residuals, codes
}

// Backward returns the gradients with respect to x and the trained parameters, given the gradient
// dy with respect to Q(x), value.
func (q *Quantizer) Backward(x, value program.Value, given Given, residuals []program.Value,
	dy program.Value) (dx program.Value, dTrained []program.Value) {
	var in []program.Value
	for _, r := range q.parts.Residuals {
		switch {
		case r.Input && r.Name == spec.InputX:
			in = append(in, x)
		case r.Input:
			in = append(in, given[r.Name])
		case r.Name == spec.OutputValue:
			in = append(in, value)
		default:
			in, residuals = append(in, residuals[0]), residuals[1:]
		}
	}
	out := calls.Rows(q.parts.Backward, calls.RowsOf(q.spec.Program), append(in, dy)...)
	return out[autodiff.Prefix+spec.InputX], lists.Map(q.Trained(),
		func(t spec.Tensor) program.Value { return out[autodiff.Prefix+spec.TrainedPrefix+t.Name] })
}

// ByRows adds p to the program of args, a quantizer for evaluation or another one over the rows of
// its first input, and returns its outputs by name.
func ByRows(p *program.Program, args ...program.Value) map[string]program.Value {
	return calls.Rows(p, calls.RowsOf(p), args...)
}

// KeepRotated returns the quantizer without its final rotation, so that its values stay rotated;
// nil if it does not end in a rotation of rows. Rotations cancel in a product whose operands are
// rotated in the same way. The rotation is removed from the value and the surrogate, and hence from
// the surrogate's gradient. A backward pass of the quantizer's own is changed to take the rotated
// gradient.
func (q *Quantizer) KeepRotated() (*Rotated, error) {
	full, half := q.spec, q.spec
	block := passes.EndingRotation(full.Program, spec.OutputValue)
	if block == 0 {
		return nil, nil
	}
	var err error
	half.Program, err = passes.UndoRotation(
		full.Program, block, spec.OutputValue, spec.OutputSurrogate)
	if err != nil {
		return nil, err
	}
	if full.Backward != nil {
		half.Backward, err = passes.ReceiveRotated(full.Backward, block, spec.InputDY)
		if err != nil {
			return nil, err
		}
	}
	half.Unpack = nil // Unpack returns Q(x) and not H·Q(x)
	u, err := New(half)
	if err != nil {
		return nil, fmt.Errorf("quantizer without its last rotation: %w", err)
	}
	rotated := func(parts ...*program.Program) (sum int64) {
		for _, p := range parts {
			sum += passes.RotatedElements(p)
		}
		return sum
	}
	saved := rotated(q.parts.Forward, q.parts.Backward) -
		rotated(u.parts.Forward, u.parts.Backward)
	size := full.Program.Inputs[0].Type.Size()
	return &Rotated{u, block, float64(saved) / float64(size)}, nil
}

// Only returns p with the named outputs alone; nodes that these do not need stay.
func Only(p *program.Program, outputs ...string) *program.Program {
	only := *p
	only.Outputs = slices.DeleteFunc(slices.Clone(p.Outputs), func(o program.Output) bool {
		return !slices.Contains(outputs, o.Name)
	})
	return &only
}
