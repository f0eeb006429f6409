package lower

import (
	"math"

	"github.com/cage-qat/cage/sdk/program"
)

// delayRounding rewrites clip(round(x)), where clip is a clamp, a maximum or a
// minimum, to round(clip(x)) if the bounds are integers. The result is the same, as
// integers round to themselves, and the Go backend rounds a number that is known to be
// small in two vectorized steps. A rounded value with other uses stays as it is.
func delayRounding(p *program.Program) (*program.Program, error) {
	b := program.NewBuilder(p.Name)
	inputs := make([]program.Value, len(p.Inputs))
	for i, in := range p.Inputs {
		inputs[i] = b.Input(in.Name, in.Type)
	}
	uses := countUses(p)
	rounded := map[program.ID]program.Value{} // the operand of round, by the id of its result
	values := program.Interpret(p, inputs, func(id program.ID, n *program.Node, args []program.Value) program.Value {
		if n.Op == program.OpRound {
			rounded[id] = args[0]
		}
		if j := delayedOperand(p, n, uses, rounded); j >= 0 {
			args[j] = rounded[n.Args[j]]
			rounded[id] = b.Apply(n.Op, n.Attr, n.Type, args...)
			return rounded[id].Round()
		}
		return b.Apply(n.Op, n.Attr, n.Type, args...)
	})
	for _, o := range p.Outputs {
		b.Output(o.Name, values[o.Value])
	}
	return b.Build()
}

// delayedOperand returns which operand of a clamp, max or min is a rounding used
// nowhere else, if the others are integer constants, and -1 otherwise.
func delayedOperand(p *program.Program, n *program.Node, uses []int, rounded map[program.ID]program.Value) int {
	if n.Op != program.OpClamp && n.Op != program.OpMax && n.Op != program.OpMin {
		return -1
	}
	found := -1
	for j, id := range n.Args {
		if integral(p.Node(id)) {
			continue
		}
		if _, ok := rounded[id]; !ok || uses[id] != 1 || found >= 0 {
			return -1
		}
		found = j
	}
	return found
}

// integral reports whether a node is a constant scalar integer that every format
// represents.
func integral(n *program.Node) bool {
	if n == nil || n.Op != program.OpConstant || len(n.Attr.Floats) != 1 {
		return false
	}
	v := n.Attr.Floats[0]
	return v == math.Trunc(v) && math.Abs(v) <= 1<<24
}

// countUses counts, for each value, the operands and outputs that use it.
func countUses(p *program.Program) []int {
	uses := make([]int, p.NumValues())
	for i := range p.Nodes {
		for _, a := range p.Nodes[i].Args {
			uses[a]++
		}
	}
	for _, o := range p.Outputs {
		uses[o.Value]++
	}
	return uses
}
