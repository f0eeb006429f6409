package passes

import (
	"slices"

	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/autodiff"
	"github.com/cage-qat/cage/sdk/program/transform"
)

// AddInCalls makes sums with results of calls parts of the calls, whose kernels can add without
// another pass over memory. Before and after:
//
//	%3 = linear %1 %2              %3 = linear.sum %1 %2 %0
//	%4 = add %0 %3
//
// It does so with the first result of the named calls, and with the adjoint of their first operand,
// if nothing else reads it.
func AddInCalls(p *program.Program, names ...string) (*program.Program, error) {
	uses := Uses(p)
	addends, sums := map[program.ID]program.ID{}, map[program.ID]program.ID{} // of results; their sums
	for i, n := range p.Nodes {
		for j := range min(len(n.Args), 2) {
			result, other := n.Args[j], n.Args[len(n.Args)-1-j]
			if n.Op == program.OpAdd && uses[result] == 1 && other < result &&
				firstOf(p.Node(result), names) && p.TypeOf(other).Equal(n.Type) {
				addends[result], sums[program.ID(len(p.Inputs)+i)] = other, result
				break
			}
		}
	}
	b := program.NewSimplifier(p.Name)
	values, calls := transform.Inputs(b, p, nil), map[program.ID]*program.Call{}
	transform.Interpret(p, values[:len(p.Inputs)], func(id program.ID, n *program.Node,
		args []program.Value) program.Value {
		if result, ok := sums[id]; ok {
			values[id] = values[result]
			return values[id]
		}
		attr := n.Attr
		for result, addend := range addends {
			if n.SameCall(p.Node(result)) {
				if calls[result] == nil {
					calls[result] = summing(b, n.Attr.Call)
				}
				attr.Call, args = calls[result], append(args, values[addend])
			}
		}
		values[id] = b.Apply(n.Op, attr, n.Type, args...)
		return values[id]
	})
	for _, o := range p.Outputs {
		b.Output(o.Name, values[o.Value])
	}
	return b.Build()
}

// Uses counts how often each value of p is used, as an operand or as an output.
func Uses(p *program.Program) []int {
	uses := make([]int, p.NumValues())
	for _, n := range p.Nodes {
		for _, a := range n.Args {
			uses[a]++
		}
	}
	for _, o := range p.Outputs {
		uses[o.Value]++
	}
	return uses
}

// firstOf reports whether a node is the first result of one of the named calls, or the adjoint of
// its first operand.
func firstOf(n *program.Node, names []string) bool {
	if n == nil || n.Op != program.OpCall || n.Attr.Call.Adds || n.Attr.Output != 0 {
		return false
	}
	c := n.Attr.Call
	if c.Of != nil && c.Meaning.Outputs[0].Name != autodiff.Prefix+c.Of.Meaning.Inputs[0].Name {
		return false
	}
	return slices.Contains(names, c.Name) || c.Of != nil && slices.Contains(names, c.Of.Name)
}

// summing returns the call that also adds its last operand to the first result of c. b gets errors.
func summing(b *program.Builder, c *program.Call) *program.Call {
	own := program.NewBuilder(c.Meaning.Name)
	args := transform.Inputs(own, c.Meaning, nil)[:len(c.Meaning.Inputs)]
	addend := own.Input("addend", c.Meaning.TypeOf(c.Meaning.Outputs[0].Value))
	results := transform.Inline(own, c.Meaning, args...)
	for i, o := range c.Meaning.Outputs {
		if i == 0 {
			results[o.Name] = addend.Add(results[o.Name])
		}
		own.Output(o.Name, results[o.Name])
	}
	meaning, err := own.Build()
	if err != nil {
		b.Fail(err)
	}
	return &program.Call{Name: c.Name + ".sum", Setting: c.Setting, Meaning: meaning, Of: c,
		Adds: true}
}
