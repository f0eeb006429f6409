package lower

import (
	"github.com/cage-qat/cage/host/compute/calls"
	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/compute/graph"
	"github.com/cage-qat/cage/host/compute/passes"
	"github.com/cage-qat/cage/internal/lists"
)

// ownRule returns the rule for a call of package calls; nil if there is none.
func ownRule(name string) func(c Call) []*graph.Node {
	one := func(f func(x *graph.Node) *graph.Node) func(c Call) []*graph.Node {
		return func(c Call) []*graph.Node { return []*graph.Node{f(c.Args[0])} }
	}
	switch name {
	case calls.ByRows:
		return func(c Call) []*graph.Node {
			args := lists.Map(c.Args, asFloat)
			return lowerRows(args[0].Graph(), c.Meaning, c.Setting.(int), args, codesInMemory)
		}
	case calls.AllReduceSum:
		return one(func(x *graph.Node) *graph.Node { return graph.AllReduce(x, graph.Sum) })
	case calls.AllReduceMaximum:
		return one(func(x *graph.Node) *graph.Node { return graph.AllReduce(x, graph.Maximum) })
	case calls.ReduceScatter:
		return one(engine.ScatterSum)
	case calls.AllGather:
		return func(c Call) []*graph.Node {
			x := c.Args[0]
			if !engine.HasRows(x) {
				return []*graph.Node{x}
			}
			rounded := c.Setting.(bool) && engine.InBFloat16(x.Graph())
			return []*graph.Node{engine.GatherOperand(engine.Rows(x), rounded)}
		}
	}
	return nil
}

// codesInMemory specifies that kernels store codes in 8 bits.
var codesInMemory = InMemory{passes.OutputIntegers: passes.Int8}
