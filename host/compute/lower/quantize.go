package lower

import (
	"fmt"

	"github.com/gomlx/gomlx/core/graph"

	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/compute/passes"
	"github.com/cage-qat/cage/internal/lists"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/autodiff"
	"github.com/cage-qat/cage/sdk/program/transform"
	"github.com/cage-qat/cage/sdk/spec"
)

// Quantizer points to a [FakeQuantizer]; nil means no quantizer.
type Quantizer = *FakeQuantizer

// FakeQuantizer is the fake quantization of one tensor in graphs. Its program is split into a
// forward and a backward part, which may be in different graphs. Its methods build graphs and panic
// like [Lower].
type FakeQuantizer struct {
	spec          spec.Quantizer
	parts         *autodiff.Partition
	call, forward *program.Call // with and without an adjoint
	next          *program.Call // of the next state; nil if there is none
}

// NewQuantizer prepares a quantizer's training program, which must be valid. The forward part
// returns the value; the backward part is the quantizer's own, or else derived from the surrogate.
// Kernels store all floats except codes in float32.
func NewQuantizer(q spec.Quantizer) (Quantizer, error) {
	parts, err := q.Split()
	if err != nil {
		return nil, fmt.Errorf("backward pass of the quantizer: %w", err)
	}
	call := &program.Call{Name: quantizing, Setting: q.Program.Name, Adjoint: parts.Backward}
	if call.Meaning, err = withInputsOf(parts.Forward, parts.Residuals); err != nil {
		return nil, err
	}
	forward := &program.Call{Name: call.Name, Setting: call.Setting, Meaning: parts.Forward}
	var next *program.Call
	if q.Next != nil {
		next = &program.Call{Name: "next state", Setting: q.Program.Name, Meaning: q.Next}
	}
	return &FakeQuantizer{q, parts, call, forward, next}, nil
}

// Trained lists the quantizer's trained parameters. Most quantizers have none.
func (q *FakeQuantizer) Trained() []spec.Tensor { return q.spec.Trained }

// State lists the tensors that the quantizer carries from step to step. Most quantizers have none.
func (q *FakeQuantizer) State() []spec.Tensor { return q.spec.State }

// Takes reports whether the quantizer takes the named input of [spec.StepInputs].
func (q *FakeQuantizer) Takes(input string) bool { return q.spec.HasInput(input) }

// Calibrated reports whether Init or InitState reads column statistics.
func (q *FakeQuantizer) Calibrated() bool { return q.spec.Calibrated() }

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
func (q *FakeQuantizer) Call(gradient bool) *program.Call {
	if gradient {
		return q.call
	}
	return q.forward
}

// NextCall returns the call of the state after a step; nil if the quantizer updates no state.
func (q *FakeQuantizer) NextCall() *program.Call { return q.next }

// Rotated is a quantizer whose values stay rotated: it returns H·Q(x) and takes gradients with
// respect to H·Q(x). H rotates each block of Block elements of a row.
type Rotated struct {
	Quantizer Quantizer
	Block     int
	// Saved is the number of rotations, counted in whole tensors, that a forward and a backward
	// pass save together. It is negative if they need more.
	Saved float64
}

// Given holds a quantizer's inputs besides x.
type Given struct {
	// Trained holds the trained parameters, in the order of [FakeQuantizer.Trained].
	Trained []*graph.Node
	// State holds the state after the last step, in the order of [FakeQuantizer.State].
	State []*graph.Node
	// Noise and SharedNoise are keys for random bits, uint32[2]; Step is the number of the training
	// step and Steps that of all steps, float32 scalars. Each is nil if the quantizer does not take
	// it.
	Noise, SharedNoise, Step, Steps *graph.Node
}

// Columns holds column statistics ([sdk.Columns]) of shape [1, columns], keyed by the names of
// inputs ([spec.ColumnInputs]). It may be nil for a quantizer that is not calibrated.
type Columns map[string]*graph.Node

// ColumnsOf computes the column statistics of one operand x of a product, [rows, columns]. The keys
// are the names of the inputs for activations if activations is set, else for weights.
func ColumnsOf(x *graph.Node, activations bool) Columns {
	largest, mean := spec.InputWeightsMax, spec.InputWeightsMean
	if activations {
		largest, mean = spec.InputActivationsMax, spec.InputActivationsMean
	}
	a := graph.Abs(x)
	return Columns{largest: graph.ReduceAndKeep(a, graph.ReduceMax, 0),
		mean: graph.ReduceAndKeep(a, graph.ReduceMean, 0)}
}

// Point is where a backward pass is evaluated: the inputs of the forward pass and its value.
type Point struct {
	X *graph.Node
	Given
	Value *graph.Node
}

// Init returns the initial values of the trained parameters for x.
func (q *FakeQuantizer) Init(x *graph.Node, columns Columns) []*graph.Node {
	return listed(q.spec.Init, columns.after(x, q.spec.Init), spec.TrainedPrefix, q.Trained())
}

// InitState returns the initial state for x.
func (q *FakeQuantizer) InitState(x *graph.Node, columns Columns) []*graph.Node {
	return listed(q.spec.InitState, columns.after(x, q.spec.InitState), spec.KeptPrefix, q.State())
}

// after returns the inputs of p, a program that computes initial values: x and the statistics that
// p takes.
func (c Columns) after(x *graph.Node, p *program.Program) []*graph.Node {
	in := []*graph.Node{x}
	for p != nil && len(in) < len(p.Inputs) {
		in = append(in, c[p.Inputs[len(in)].Name])
	}
	return in
}

// Next returns the state after a step that quantizes x; nil if the quantizer updates no state.
func (q *FakeQuantizer) Next(x *graph.Node, given Given) []*graph.Node {
	p := q.spec.Next
	if p == nil {
		return nil
	}
	return listed(p, append([]*graph.Node{x}, q.others(p, given)...), spec.KeptPrefix, q.State())
}

// listed lowers p and returns its outputs in the order of the listed tensors; nil if p is nil.
func listed(p *program.Program, in []*graph.Node, prefix string, list []spec.Tensor) []*graph.Node {
	if p == nil {
		return nil
	}
	out := Lower(in[0].Graph(), p, in)
	return lists.Map(list, func(t spec.Tensor) *graph.Node { return out[prefix+t.Name] })
}

// Evaluation returns the quantizer for evaluation, whose only per-step input is the state, which it
// does not update. It returns nil if evaluation quantizes in the same way as training.
func (q *FakeQuantizer) Evaluation() (Quantizer, error) {
	if q.spec.Evaluate == nil && q.spec.Next == nil {
		return nil, nil
	}
	return NewQuantizer(q.spec.ForEvaluation())
}

// nodes returns the inputs besides x, by name.
func (q *FakeQuantizer) nodes(given Given) map[string]*graph.Node {
	nodes := map[string]*graph.Node{spec.InputNoise: given.Noise,
		spec.InputSharedNoise: given.SharedNoise, spec.InputStep: given.Step,
		spec.InputSteps: given.Steps}
	for i, t := range q.Trained() {
		nodes[spec.TrainedPrefix+t.Name] = given.Trained[i]
	}
	for i, t := range q.State() {
		nodes[spec.KeptPrefix+t.Name] = given.State[i]
	}
	return nodes
}

// others returns the inputs of p besides x, in the order in which p declares them.
func (q *FakeQuantizer) others(p *program.Program, given Given) []*graph.Node {
	nodes := q.nodes(given)
	return lists.Map(p.Inputs[1:], func(in program.Input) *graph.Node { return nodes[in.Name] })
}

// Forward returns Q(x), the residuals that Backward needs besides the Point, and the codes of Q(x),
// if the device multiplies them ([FakeQuantizer.CodeShapes]).
func (q *FakeQuantizer) Forward(x *graph.Node, given Given) (value *graph.Node, residuals,
	codes []*graph.Node) {
	p, coded := q.factoredForward(engine.DeviceOf(x.Graph()))
	inputs := append([]*graph.Node{x}, q.others(q.spec.Program, given)...)
	out := lowerRows(x.Graph(), p, rowsOf(q.spec.Program), inputs, codesInMemory)
	if coded {
		codes = lists.Map(codeOutputs, func(name string) *graph.Node { return out[name] })
	}
	return out[spec.OutputValue], q.residuals(out), codes
}

func (q *FakeQuantizer) residuals(out map[string]*graph.Node) []*graph.Node {
	var residuals []*graph.Node
	for _, r := range q.parts.Residuals {
		if !r.Input && r.Name != spec.OutputValue {
			residuals = append(residuals, out[r.Name])
		}
	}
	return residuals
}

// Backward returns the gradients with respect to x and the trained parameters, given the gradient
// dy with respect to Q(x).
func (q *FakeQuantizer) Backward(
	at Point, residuals []*graph.Node, dy *graph.Node,
) (dx *graph.Node, dTrained []*graph.Node) {
	inputs := q.backwardInputs(at, residuals, dy)
	out := lowerRows(dy.Graph(), q.parts.Backward, rowsOf(q.spec.Program), inputs, codesInMemory)
	return out[autodiff.Prefix+spec.InputX], q.trainedGradients(out)
}

func (q *FakeQuantizer) backwardInputs(
	at Point, residuals []*graph.Node, dy *graph.Node,
) []*graph.Node {
	known := q.nodes(at.Given)
	known[spec.InputX] = at.X
	inputs := make([]*graph.Node, 0, len(q.parts.Residuals)+1)
	for _, r := range q.parts.Residuals {
		switch {
		case r.Input:
			inputs = append(inputs, known[r.Name])
		case r.Name == spec.OutputValue:
			inputs = append(inputs, at.Value)
		default:
			inputs, residuals = append(inputs, residuals[0]), residuals[1:]
		}
	}
	return append(inputs, dy)
}

// trainedGradients picks the gradients of the trained parameters from the outputs of a backward
// pass.
func (q *FakeQuantizer) trainedGradients(out map[string]*graph.Node) []*graph.Node {
	return lists.Map(q.Trained(), func(t spec.Tensor) *graph.Node {
		return out[autodiff.Prefix+spec.TrainedPrefix+t.Name]
	})
}

// KeepRotated returns the quantizer without its final rotation, so that its values stay rotated;
// nil if it does not end in a rotation of rows. Rotations cancel in a product whose operands are
// rotated in the same way. The rotation is removed from the value and the surrogate, and hence from
// the surrogate's gradient. A backward pass of the quantizer's own is changed to take the rotated
// gradient.
func (q *FakeQuantizer) KeepRotated() (*Rotated, error) {
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
	u, err := NewQuantizer(half)
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
