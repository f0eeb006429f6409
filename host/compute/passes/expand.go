package passes

import (
	"fmt"

	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/transform"
)

// ExpandCalls puts the meanings of calls in their places, except of those that keep selects. Before
// and after:
//
//	%2 = block %0 %1               %2 = rms_norm %0 %1
//	                               %3 = linear %2 %1
//
// Equal operations are computed once: the backward pass of a call reads what the forward pass has
// computed. For calls with the given name it computes them again, from the operands of the call, so
// that they need not stay in memory; the name "" is none.
func ExpandCalls(p *program.Program, keep func(*program.Call) bool, again string) (
	*program.Program, error) {
	for {
		b, found := program.NewSimplifier(p.Name), false
		results := map[string]map[string]program.Value{}
		values := transform.Inputs(b, p, nil)
		copied := transform.Interpret(p, values[:len(p.Inputs)], func(_ program.ID, n *program.Node,
			args []program.Value) program.Value {
			c := n.Attr.Call
			if n.Op != program.OpCall || keep(c) {
				return b.Apply(n.Op, n.Attr, n.Type, args...)
			}
			key := fmt.Sprintf("%p %v", c, n.Args)
			if results[key] == nil {
				meaning := c.Meaning
				if c.Of != nil && c.Of.Name == again {
					meaning = withOwnCalls(meaning)
				}
				results[key], found = transform.Inline(b, meaning, args...), true
			}
			return results[key][c.Meaning.Outputs[n.Attr.Output].Name]
		})
		for _, out := range p.Outputs {
			b.Output(out.Name, copied[out.Value])
		}
		next, err := b.Build()
		if err != nil || !found {
			return next, err
		}
		p = next
	}
}

// withOwnCalls returns a program with copies of its calls, which are not equal to other calls.
func withOwnCalls(p *program.Program) *program.Program {
	copies := map[*program.Call]*program.Call{}
	var own func(c *program.Call) *program.Call
	own = func(c *program.Call) *program.Call {
		if c == nil || copies[c] != nil {
			return copies[c]
		}
		copied := *c
		copied.Of = own(c.Of)
		copies[c] = &copied
		return &copied
	}
	other := *p
	other.Nodes = append([]program.Node{}, p.Nodes...)
	for i := range other.Nodes {
		if n := &other.Nodes[i]; n.Op == program.OpCall {
			n.Attr.Call = own(n.Attr.Call)
		}
	}
	return &other
}
