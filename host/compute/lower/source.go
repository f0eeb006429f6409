package lower

import (
	"maps"

	"github.com/cage-qat/cage/host/compute/calls"
	"github.com/cage-qat/cage/host/compute/graph"
	"github.com/cage-qat/cage/host/compute/passes"
	"github.com/cage-qat/cage/internal/lists"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/autodiff"
	"github.com/cage-qat/cage/sdk/program/transform"
	"github.com/cage-qat/cage/sdk/spec"
)

// operandsInMemory are the types in which kernels store operands of products, codes, and gradients.
var operandsInMemory = InMemory{
	spec.InputX: passes.BFloat16, spec.OutputValue: passes.BFloat16,
	autodiff.Prefix + spec.OutputSurrogate: passes.BFloat16, spec.InputDY: passes.BFloat16,
	autodiff.Prefix + spec.InputX: passes.BFloat16, passes.OutputIntegers: passes.Int8,
}

// quantize returns the results of the call of a quantizer: Q(x), and what its adjoint reads. If the
// device computes programs with kernels, x, Q(x) and their gradients are rounded to its precision,
// and if the [Source] of x is known, the kernel also computes x.
func quantize(c *program.Call, args []*graph.Node) []*graph.Node {
	g, rows := args[0].Graph(), calls.RowsOf(c.Meaning)
	args = lists.Map(args, asFloat)
	if s, ok := graph.NoteOf[*Source](args[0]); ok && s != nil {
		p, err := s.before(c.Meaning)
		if err != nil {
			panic(err)
		}
		in := append(append([]*graph.Node{}, s.Inputs...), args[1:]...)
		if out, ok := Kernel(g, subjectOf(p, rows, true), p, rows, in, s.memory()); ok {
			s.joined = true
			if s.Saved != nil {
				saved := map[string]*graph.Node{}
				for _, o := range s.Forward.Outputs {
					saved[o.Name] = out[sourcePrefix+o.Name]
				}
				s.Saved(saved)
			}
			return inOrder(c.Meaning, out)
		}
	}
	return lowerRows(g, c.Meaning, rows, args, operandsInMemory)
}

// quantizeBackward returns the results of the adjoint of a quantizer's call.
func quantizeBackward(back *program.Call, args []*graph.Node) []*graph.Node {
	rows := calls.RowsOf(back.Of.Meaning)
	return lowerRows(args[0].Graph(), back.Meaning, rows, args, operandsInMemory)
}

// A Source computes an activation row by row from other tensors, such as the two that a gate
// multiplies. It can be joined with a quantizer: one kernel then computes and quantizes the
// activation, which is never stored in memory.
type Source struct {
	// Inputs have the shape [tokens, n], or [1, n] if all tokens share them.
	Inputs []*graph.Node
	// Rounded reports whether inputs of shape [tokens, n], and their adjoints, are rounded to the
	// device's precision.
	Rounded bool
	// Forward takes the inputs and returns the activation as output [SourceValue].
	Forward *program.Program
	// Backward, unless nil, takes the inputs and, last, the adjoint of the value, and returns the
	// adjoints of the inputs in their order. The kernel of the quantizer's backward pass computes it.
	Backward *program.Program
	// Saved, unless nil, gets the outputs of Forward by name, after a kernel has computed them.
	Saved func(outputs map[string]*graph.Node)

	joined bool
}

// SourceValue is the name of the output of [Source.Forward] that holds the activation.
const SourceValue = "source.value"

// sourcePrefix is the prefix for the names of a source's inputs and outputs in joined programs.
const sourcePrefix = "source."

// AttachTo attaches s to the node of its activation, where the quantizer of it finds it; nil
// replaces one that was attached before.
func (s *Source) AttachTo(x *graph.Node) { graph.Note(x, s) }

// before returns the source's forward pass followed by a quantizer's, as one program.
func (s *Source) before(forward *program.Program) (*program.Program, error) {
	b := program.NewBuilder(forward.Name)
	inputs := s.declare(b)
	args := make([]program.Value, len(forward.Inputs))
	for i, in := range forward.Inputs[1:] {
		args[1+i] = b.Input(in.Name, in.Type)
	}
	values := transform.Inline(b, s.Forward, inputs...)
	args[0] = values[SourceValue]
	out := transform.Inline(b, forward, args...)
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

// after returns a quantizer's backward pass followed by the source's, as one program. Its outputs
// are the adjoints of the source's inputs and of the trained parameters.
func (s *Source) after(back *program.Program) (*program.Program, error) {
	b := program.NewBuilder(back.Name)
	inputs := s.declare(b)
	args := make([]program.Value, len(back.Inputs))
	for i, in := range back.Inputs {
		if in.Name != spec.InputX {
			args[i] = b.Input(in.Name, in.Type)
		}
	}
	if x := back.Input(spec.InputX); x >= 0 {
		args[x] = transform.Inline(b, s.Forward, inputs...)[SourceValue]
	}
	out := transform.Inline(b, back, args...)
	inputs = append(inputs, out[autodiff.Prefix+spec.InputX])
	adjoints := transform.Inline(b, s.Backward, inputs...)
	for i, o := range s.Backward.Outputs {
		b.Output(autodiff.Prefix+sourcePrefix+s.Forward.Inputs[i].Name, adjoints[o.Name])
	}
	for _, o := range back.Outputs {
		if o.Name != autodiff.Prefix+spec.InputX {
			b.Output(o.Name, out[o.Name])
		}
	}
	return b.Build()
}

func (s *Source) declare(b *program.Builder) []program.Value {
	return lists.Map(s.Forward.Inputs, func(in program.Input) program.Value {
		return b.Input(sourcePrefix+in.Name, in.Type)
	})
}

// memory returns the types in which joined passes store floats in memory.
func (s *Source) memory() InMemory {
	memory := maps.Clone(operandsInMemory)
	delete(memory, spec.InputX) // the activation is never stored
	delete(memory, autodiff.Prefix+spec.InputX)
	for _, in := range s.Forward.Inputs {
		if s.Rounded && in.Type.Shape[0] > 1 {
			memory[sourcePrefix+in.Name] = passes.BFloat16
			memory[autodiff.Prefix+sourcePrefix+in.Name] = passes.BFloat16
		}
	}
	return memory
}

// Join computes the adjoints of a source's inputs together with the adjoint of the activation, by
// the kernel of the quantizer's backward pass. ok is false if a is no such adjoint, if anything
// else reads it, or if there is no kernel.
func (a Adjoint) Join(s *Source) (adjoints []*graph.Node, ok bool) {
	e := a.e
	if e == nil || !s.joined || s.Backward == nil || e.values[a.id] != nil {
		return nil, false
	}
	n := e.p.Node(a.id)
	if n == nil || n.Op != program.OpCall || n.Attr.Call.Of == nil ||
		n.Attr.Call.Of.Name != calls.Quantize ||
		n.Attr.Call.Meaning.Outputs[n.Attr.Output].Name != autodiff.Prefix+spec.InputX {
		return nil, false
	}
	first := e.p.Node(e.readers[a.id][0])
	for _, reader := range e.readers[a.id] {
		if m := e.p.Node(reader); m == nil || !m.SameCall(first) {
			return nil, false
		}
	}
	back, key := n.Attr.Call.Meaning, callKey(n.Attr.Call, n.Args)
	if e.results[key] != nil {
		return nil, false
	}
	p, err := s.after(back)
	if err != nil {
		panic(err)
	}
	in := append([]*graph.Node{}, s.Inputs...)
	for i, arg := range n.Args {
		if back.Inputs[i].Name != spec.InputX {
			in = append(in, asFloat(e.value(arg)))
		}
	}
	rows := calls.RowsOf(n.Attr.Call.Of.Meaning)
	out, ok := Kernel(e.g, subjectOf(p, rows, true), p, rows, in, s.memory())
	if !ok {
		return nil, false
	}
	e.results[key] = inOrder(back, out)
	return lists.Map(s.Forward.Inputs, func(in program.Input) *graph.Node {
		return out[autodiff.Prefix+sourcePrefix+in.Name]
	}), true
}
