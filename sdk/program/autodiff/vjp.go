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
	"strings"

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
	return vjp(p, []string{output}, wrt)
}

// vjp is VJP for several outputs, with a cotangent of each.
func vjp(p *program.Program, outputs, wrt []string) (*program.Program, error) {
	t, err := newTape(p, outputs, wrt, ".vjp")
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
	p       *program.Program
	b       *program.Builder
	outputs []program.ID
	wrt     []program.ID
	seeds   []program.Value // the cotangents of the outputs
	values  []program.Value
	// adjoints are absent (zero Values) where no cotangent has arrived.
	adjoints []program.Value
	// active marks the values that depend on wrt through a path that has a gradient.
	active []bool
}

func newTape(p *program.Program, outputs, wrt []string, suffix string) (*tape, error) {
	t := &tape{p: p, adjoints: make([]program.Value, p.NumValues())}
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
	if len(wrt) == 0 {
		return nil, fmt.Errorf("program %q: got no inputs to differentiate with respect to", p.Name)
	}
	t.b = program.NewSimplifier(extend(p.Name, suffix))
	t.values = transform.Inputs(t.b, p, nil)[:len(p.Inputs)]
	for _, output := range outputs {
		id, ok := p.Output(output)
		if !ok {
			return nil, fmt.Errorf("program %q has no output %q", p.Name, output)
		}
		if got := p.TypeOf(id); got.DType != program.Float {
			const format = "program %q: output %q is %s: only floats have gradients"
			return nil, fmt.Errorf(format, p.Name, output, got)
		}
		if p.Input(Prefix+output) >= 0 {
			return nil, fmt.Errorf("program %q: the input %q has the name of the cotangent of output %q",
				p.Name, Prefix+output, output)
		}
		t.outputs = append(t.outputs, id)
		t.seeds = append(t.seeds, t.b.Input(Prefix+output, p.TypeOf(id)))
	}
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
	for i, output := range t.outputs {
		t.add(output, t.seeds[i])
	}
	for i := len(t.p.Nodes) - 1; i >= 0; i-- {
		if err := t.b.Err(); err != nil { // values after a mistake have no types
			return err
		}
		id := program.ID(len(t.p.Inputs) + i)
		n := &t.p.Nodes[i]
		if n.Op == program.OpCall {
			if err := t.reverseCall(i); err != nil {
				return fmt.Errorf("program %q: %%%d = %s: %w", t.p.Name, id, n.Attr.Call.Name, err)
			}
		} else if dy := t.adjoints[id]; dy.Valid() {
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

// reverseCall adds the cotangents of the operands of a call, which are the results of another call.
// Node i is one of the call's results. Nothing is done before its first one is reached, when all of
// their cotangents are complete.
func (t *tape) reverseCall(i int) error {
	n := &t.p.Nodes[i]
	c, args := n.Attr.Call, make([]program.Value, len(n.Args))
	var outputs, wrt []string
	for j, a := range n.Args {
		if args[j] = t.values[a]; t.active[a] {
			wrt = append(wrt, c.Meaning.Inputs[j].Name)
		}
	}
	for j := range t.p.Nodes[i:] {
		m, dy := &t.p.Nodes[i+j], t.adjoints[len(t.p.Inputs)+i+j]
		if !m.SameCall(n) || !dy.Valid() {
			continue
		}
		name := c.Meaning.Outputs[m.Attr.Output].Name
		if k := slices.Index(outputs, name); k >= 0 { // the same result, written twice
			args[len(n.Args)+k] = args[len(n.Args)+k].Add(dy)
		} else {
			outputs, args = append(outputs, name), append(args, dy)
		}
	}
	earlier := func(m program.Node) bool { return m.SameCall(n) }
	if len(outputs) == 0 || slices.ContainsFunc(t.p.Nodes[:i], earlier) {
		return nil
	}
	p, err := c.Adjoint, error(nil)
	if p != nil {
		args, err = t.adjointOperands(c, args[:len(n.Args)], outputs, args[len(n.Args):])
	} else {
		p, err = vjp(c.Meaning, outputs, wrt)
	}
	if err != nil {
		return err
	}
	adjoint := &program.Call{Name: extend(c.Name, ".vjp"), Setting: c.Setting, Meaning: p, Of: c}
	for k, d := range t.b.Call(adjoint, args...) {
		t.add(n.Args[c.Meaning.Input(strings.TrimPrefix(p.Outputs[k].Name, Prefix))], d)
	}
	return nil
}

// adjointOperands returns the operands of the adjoint that a call brings with it, given the call's
// operands and the adjoints of some of its results.
func (t *tape) adjointOperands(c *program.Call, operands []program.Value, outputs []string,
	adjoints []program.Value) (args []program.Value, err error) {
	if first := c.Meaning.Outputs[0].Name; len(outputs) != 1 || outputs[0] != first {
		return nil, fmt.Errorf("its adjoint needs that of %s, and there are those of %v", first, outputs)
	}
	last := len(c.Adjoint.Inputs) - 1
	for _, o := range c.Adjoint.Outputs {
		i := c.Meaning.Input(strings.TrimPrefix(o.Name, Prefix))
		if i < 0 || !strings.HasPrefix(o.Name, Prefix) ||
			!c.Adjoint.TypeOf(o.Value).Equal(c.Meaning.Inputs[i].Type) {
			return nil, fmt.Errorf("its adjoint returns %q, which is no gradient of an operand", o.Name)
		}
	}
	if last < 0 || !c.Adjoint.Inputs[last].Type.Equal(adjoints[0].Type()) {
		return nil, fmt.Errorf("its adjoint does not end with that of %s", outputs[0])
	}
	results := t.b.Call(c, operands...)
	for _, in := range c.Adjoint.Inputs[:last] {
		if i := c.Meaning.Input(in.Name); i >= 0 {
			args = append(args, operands[i])
			continue
		}
		i := slices.IndexFunc(c.Meaning.Outputs, func(o program.Output) bool { return o.Name == in.Name })
		if i < 0 {
			return nil, fmt.Errorf("its adjoint reads %q, which is no operand or result", in.Name)
		}
		args = append(args, results[i])
	}
	return append(args, adjoints[0]), nil
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
