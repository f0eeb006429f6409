package lower

import (
	"maps"
	"slices"

	"github.com/gomlx/gomlx/core/graph"

	"github.com/cage-qat/cage/host/compute/engine"
	device "github.com/cage-qat/cage/host/compute/engine/autodiff"
	"github.com/cage-qat/cage/host/compute/triton"
	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/autodiff"
)

// A Source is the computation that produces an activation, row by row, from other tensors, such as the two that a gate
// multiplies. It can be fused with the quantizer: one kernel computes and quantizes the activation, which is then never
// stored in memory.
type Source struct {
	// Inputs are each of shape [tokens, n], or [1, n] if they are the same for all tokens.
	Inputs []*graph.Node
	// InBFloat16 says that inputs of shape [tokens, n] are exact in bfloat16. Their adjoints are rounded to it.
	InBFloat16 bool
	// Forward takes the inputs and returns [SourceValue], the activation. Its other outputs are residuals for Adjoint.
	Forward *program.Program
	// Backward takes the inputs and, last, the adjoint of the value, and returns the adjoints of the inputs in their
	// order. It is computed by the kernel of the quantizer's backward pass. If it is nil, Adjoint is used.
	Backward *program.Program
	// Adjoint is the same as Backward, as a graph. residuals holds the other outputs of Forward by name; it is nil if the
	// activation was stored in memory.
	Adjoint func(residuals map[string]*graph.Node, dx *graph.Node) []*graph.Node
}

// SourceValue is the name of the output of [Source.Forward] that is the activation.
const SourceValue = "source.value"

// sourcePrefix begins the names of a source's inputs and residuals in fused programs.
const sourcePrefix = "source."

// AttachTo attaches s to the node of its activation, where [Quantize] finds it.
func (s Source) AttachTo(x *graph.Node) { engine.Note(x, s) }

// fusedForward is the program of the source's forward pass followed by the quantizer's, given as forward.
func (q programQuantizer) fusedForward(s Source, forward *program.Program) (*program.Program, error) {
	b := program.NewBuilder(forward.Name)
	inputs := sourceInputs(b, s)
	args := make([]program.Value, len(forward.Inputs))
	for i, in := range forward.Inputs[1:] {
		args[1+i] = b.Input(in.Name, in.Type)
	}
	values := b.Inline(s.Forward, inputs...)
	args[0] = values[SourceValue]
	out := b.Inline(forward, args...)
	for _, o := range forward.Outputs {
		b.Output(o.Name, out[o.Name])
	}
	for _, o := range s.Forward.Outputs {
		if o.Name != SourceValue {
			b.Output(sourcePrefix+o.Name, values[o.Name])
		}
	}
	return b.Build()
}

// fusedBackward is the program of the quantizer's backward pass followed by the source's. Its outputs are the adjoints of
// the source's inputs and of the trained parameters.
func (q programQuantizer) fusedBackward(s Source) (*program.Program, error) {
	back := q.parts.Backward
	b := program.NewBuilder(back.Name)
	inputs := sourceInputs(b, s)
	args := make([]program.Value, len(back.Inputs))
	for i, in := range back.Inputs {
		if in.Name != sdk.InputX {
			args[i] = b.Input(in.Name, in.Type)
		}
	}
	if x := back.Input(sdk.InputX); x >= 0 {
		args[x] = b.Inline(s.Forward, inputs...)[SourceValue]
	}
	out := b.Inline(back, args...)
	adjoints := b.Inline(s.Backward, append(slices.Clone(inputs), out[autodiff.Prefix+sdk.InputX])...)
	for i, o := range s.Backward.Outputs {
		b.Output(autodiff.Prefix+sourcePrefix+s.Forward.Inputs[i].Name, adjoints[o.Name])
	}
	for _, o := range back.Outputs {
		if o.Name != autodiff.Prefix+sdk.InputX {
			b.Output(o.Name, out[o.Name])
		}
	}
	return b.Build()
}

func sourceInputs(b *program.Builder, s Source) []program.Value {
	var list []program.Value
	for _, in := range s.Forward.Inputs {
		list = append(list, b.Input(sourcePrefix+in.Name, in.Type))
	}
	return list
}

// fusedMemory says how the fused passes store floats.
func (q programQuantizer) fusedMemory(s Source) InMemory {
	memory := maps.Clone(q.memory)
	delete(memory, sdk.InputX) // the activation is never stored
	delete(memory, autodiff.Prefix+sdk.InputX)
	for _, in := range s.Forward.Inputs {
		if s.InBFloat16 && in.Type.Shape[0] > 1 {
			memory[sourcePrefix+in.Name], memory[autodiff.Prefix+sourcePrefix+in.Name] = triton.BFloat16, triton.BFloat16
		}
	}
	return memory
}

// quantizeFused is [Quantize] by one kernel that also computes x, from its source. ok is false if there is no such kernel.
func (q programQuantizer) quantizeFused(x *graph.Node, s Source, trained []*graph.Node) (y *graph.Node, ok bool) {
	g := x.Graph()
	base, coding := q.factoredForward(engine.DeviceOf(g))
	p, err := q.fusedForward(s, base)
	if err != nil {
		panic(err)
	}
	memory := q.fusedMemory(s)
	out, ok := Kernel(g, p, q.rows(), append(slices.Clone(s.Inputs), trained...), memory)
	if !ok {
		return nil, false
	}
	sourceResiduals := map[string]*graph.Node{}
	for _, o := range s.Forward.Outputs {
		if o.Name != SourceValue {
			sourceResiduals[o.Name] = out[sourcePrefix+o.Name]
		}
	}
	value, residuals := out[sdk.OutputValue], q.residuals(out)
	inputs := append(slices.Clone(s.Inputs), trained...)
	y = device.Custom(value, inputs, func(dy *graph.Node) []*graph.Node {
		at := Point{X: x, Trained: trained, Value: value}
		if adjoints, ok := q.backwardFused(s, at, residuals, dy, memory); ok {
			return adjoints
		}
		dx, dTrained := q.Backward(at, residuals, dy)
		return append(s.Adjoint(sourceResiduals, dx), dTrained...)
	})
	if coding != nil {
		coding.codes(out).AttachTo(y)
	}
	return y, true
}

// backwardFused is the backward pass of both as one kernel. ok is false if the source has no program for it, or if no kernel
// can compute it.
func (q programQuantizer) backwardFused(s Source, at Point, residuals []*graph.Node, dy *graph.Node, memory InMemory) (adjoints []*graph.Node, ok bool) {
	if s.Backward == nil {
		return nil, false
	}
	p, err := q.fusedBackward(s)
	if err != nil {
		panic(err)
	}
	inputs := slices.Clone(s.Inputs)
	for i, in := range q.backwardInputs(at, residuals, dy) {
		if q.parts.Backward.Inputs[i].Name != sdk.InputX {
			inputs = append(inputs, in)
		}
	}
	out, ok := Kernel(dy.Graph(), p, q.rows(), inputs, memory)
	if !ok {
		return nil, false
	}
	for _, in := range s.Forward.Inputs {
		adjoints = append(adjoints, out[autodiff.Prefix+sourcePrefix+in.Name])
	}
	return append(adjoints, q.trainedGradients(out)...), true
}
