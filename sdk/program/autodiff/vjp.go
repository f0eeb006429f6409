// Package autodiff differentiates programs in reverse mode. The gradient of a program is
// again a program.
//
// The rule for each operation is in the column Gradient of the table in package program. [VJP]
// returns the gradient as one program with the same inputs. [Split] returns two programs, as a
// training step needs them: a forward program that also returns the residuals, and a backward
// program that takes them. A device may differentiate programs in its own way; this package defines
// the correct result, and which values need not be computed.
package autodiff

import (
	"fmt"
	"slices"

	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/transform"
)

// Prefix plus the name of an output is the name of its cotangent, and Prefix plus the name
// of an input is the name of its gradient.
const Prefix = "d."

// VJP returns the vector–Jacobian product of p, which must be valid: a program that takes
// the inputs of p and the cotangent d.<output>, of that output's type, and returns
// d.<input> for each name in wrt, of that input's type. If no path leads from an input to
// the output, its gradient is zero.
//
// It is an error if a name does not exist or does not denote a float, or if the path leads through
// a matrix factorization, which has no gradient.
func VJP(p *program.Program, output string, wrt ...string) (*program.Program, error) {
	t, err := newTape(p, output, wrt, ".vjp")
	if err != nil {
		return nil, err
	}
	t.values = replay(t.b, p, t.values, false)
	if err := t.reverse(); err != nil {
		return nil, err
	}
	return t.b.Build()
}

// tape holds the state of one differentiation: the forward values of p and, for
// each, the sum of the cotangents that have reached it.
type tape struct {
	p      *program.Program
	b      *program.Builder
	output program.ID
	wrt    []program.ID
	seed   program.Value // the cotangent of the output
	values []program.Value
	// adjoints are absent (zero Values) where no cotangent has arrived.
	adjoints []program.Value
	// active marks the values that depend on wrt through a path that has a gradient.
	active []bool
}

func newTape(p *program.Program, output string, wrt []string, suffix string) (*tape, error) {
	t := &tape{p: p, adjoints: make([]program.Value, p.NumValues())}
	var ok bool
	if t.output, ok = p.Output(output); !ok {
		return nil, fmt.Errorf("program %q has no output %q", p.Name, output)
	}
	if got := p.TypeOf(t.output); got.DType != program.Float {
		const format = "program %q: output %q is %s: only floats have gradients"
		return nil, fmt.Errorf(format, p.Name, output, got)
	}
	for i, name := range wrt {
		id := p.Input(name)
		switch {
		case id < 0:
			return nil, fmt.Errorf("program %q has no input %q", p.Name, name)
		case p.Inputs[id].Type.DType != program.Float:
			return nil, fmt.Errorf("program %q: input %q is %s: only floats have gradients", p.Name, name,
				p.Inputs[id].Type)
		case slices.Contains(wrt[:i], name):
			return nil, fmt.Errorf("program %q: input %q is named twice", p.Name, name)
		}
		t.wrt = append(t.wrt, program.ID(id))
	}
	if p.Input(Prefix+output) >= 0 {
		return nil, fmt.Errorf("program %q: the input %q has the name of the cotangent of output %q",
			p.Name, Prefix+output, output)
	}
	if len(wrt) == 0 {
		return nil, fmt.Errorf("program %q: got no inputs to differentiate with respect to", p.Name)
	}
	t.b = program.NewSimplifier(extend(p.Name, suffix))
	t.values = transform.Inputs(t.b, p, nil)[:len(p.Inputs)]
	t.seed = t.b.Input(Prefix+output, p.TypeOf(t.output))
	return t, t.b.Err()
}

func extend(name, suffix string) string {
	if len(name)+len(suffix) > program.MaxName {
		return name
	}
	return name + suffix
}

// replay writes the operations of p. If withoutStops is true, stop_gradient is replaced by its
// operand, and the result must not be differentiated again.
func replay(
	b *program.Builder, p *program.Program, inputs []program.Value, withoutStops bool,
) []program.Value {
	write := func(_ program.ID, n *program.Node, args []program.Value) program.Value {
		if withoutStops && n.Op == program.OpStopGradient {
			return args[0]
		}
		return b.Apply(n.Op, n.Attr, n.Type, args...)
	}
	return transform.Interpret(p, inputs, write)
}

func (t *tape) reverse() error {
	inputs := make([]bool, len(t.p.Inputs))
	for _, id := range t.wrt {
		inputs[id] = true
	}
	t.active = active(t.p, inputs)
	t.add(t.output, t.seed)
	for i := len(t.p.Nodes) - 1; i >= 0; i-- {
		id := program.ID(len(t.p.Inputs) + i)
		if dy := t.adjoints[id]; dy.Valid() {
			n := &t.p.Nodes[i]
			operands := make([]program.Value, len(n.Args))
			for j, a := range n.Args {
				operands[j] = t.values[a]
			}
			cotangents, err := n.Cotangents(operands, t.values[id], dy)
			if err != nil {
				return fmt.Errorf("program %q: %%%d = %s: %w", t.p.Name, id, n.Op, err)
			}
			for j, d := range cotangents {
				if d.Valid() {
					t.add(n.Args[j], d)
				}
			}
			t.adjoints[id] = program.Value{}
		}
	}
	for _, id := range t.wrt {
		in := t.p.Inputs[id]
		dx := t.adjoints[id]
		if !dx.Valid() {
			dx = t.b.Zeros(in.Type.Shape...)
		}
		t.b.Output(Prefix+in.Name, dx)
	}
	return t.b.Err()
}

// Reaches reports whether the gradient of a value reaches an input: whether the value depends on
// the input through a path without operations whose gradient is zero everywhere.
func Reaches(p *program.Program, value program.ID, input int) bool {
	inputs := make([]bool, len(p.Inputs))
	inputs[input] = true
	return active(p, inputs)[value]
}

func active(p *program.Program, inputs []bool) []bool {
	return transform.Interpret(p, inputs, func(_ program.ID, n *program.Node, args []bool) bool {
		for i, active := range args {
			if active && n.Op.HasGradient(i) {
				return n.Type.DType == program.Float
			}
		}
		return false
	})
}

// add accumulates a cotangent of the value id, if id is active.
func (t *tape) add(id program.ID, d program.Value) {
	if !t.active[id] {
		return
	}
	if sum := t.adjoints[id]; sum.Valid() {
		d = sum.Add(d)
	}
	t.adjoints[id] = d
}
