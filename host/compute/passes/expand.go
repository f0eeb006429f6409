package passes

import (
	"fmt"
	"slices"

	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/transform"
)

// ExpandCalls puts the meanings of calls in their places, except of those that keep selects. Before
// and after:
//
//	%3 = block %0 %1 %2            %3 = rms_norm %0 %1
//	                               %4 = linear %3 %2
//
// Equal operations are computed once: the backward pass of a call reads what the forward pass has
// computed. In the adjoint of a call with the given name, the calls inside are copied, so that
// those that are kept, and what depends on them, are computed again and need not stay in memory; ""
// is no name.
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
					meaning = copies{}.program(meaning)
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

// copies maps calls to their copies.
type copies map[*program.Call]*program.Call

// program returns p with copies of its calls, also of those in their meanings, which are not equal
// to other calls.
func (c copies) program(p *program.Program) *program.Program {
	other := *p
	other.Nodes = slices.Clone(p.Nodes)
	for i := range other.Nodes {
		if n := &other.Nodes[i]; n.Op == program.OpCall {
			n.Attr.Call = c.call(n.Attr.Call)
		}
	}
	return &other
}

func (c copies) call(of *program.Call) *program.Call {
	if of == nil || c[of] != nil {
		return c[of]
	}
	copied := *of
	copied.Of, copied.Meaning = c.call(of.Of), c.program(of.Meaning)
	c[of] = &copied
	return &copied
}
