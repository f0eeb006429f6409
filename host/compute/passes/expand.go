package passes

import (
	"fmt"

	"github.com/cage-qat/cage/internal/lists"
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
// computed. The adjoint of a call with the given name computes it again, so that it need not stay
// in memory; "" is no name. Its operands go through stop_gradient, which makes its operations
// others than those of the forward pass.
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
				if c.Of != nil && c.Of.Name == again {
					args = lists.Map(args, program.Value.StopGradient)
				}
				results[key], found = transform.Inline(b, c.Meaning, args...), true
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
