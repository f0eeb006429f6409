package lower

import (
	"fmt"

	"github.com/gomlx/gomlx/core/graph"

	"github.com/cage-qat/cage/internal/lists"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/autodiff"
	"github.com/cage-qat/cage/sdk/program/transform"
)

// A CallKernel computes the results of a call, and returns the function that computes its
// adjoints, which may read what the kernel keeps. In both, sum, unless nil, is added to the first
// result. In a table, a nil kernel stands for package cpu, for calls that compute rows from rows,
// which products read.
type CallKernel func(c *program.Call, args []*graph.Node, sum *graph.Node) ([]*graph.Node, CallBack)

// A CallBack returns the adjoint of each operand, nil for those without, given that of each result.
type CallBack func(d []*graph.Node, sum *graph.Node) []*graph.Node

// calls lowers calls. Kernels are called once for all results of a call, and what their adjoints
// read of the forward pass is found by the call's operands.
type calls struct {
	kernels map[string]CallKernel
	results map[string][]*graph.Node
	backs   map[string]CallBack
}

func (s *calls) lower(l *lowering, n *program.Node, args []*graph.Node) *graph.Node {
	c := n.Attr.Call
	key := callKey(c, args)
	if s.results[key] == nil {
		s.results[key] = s.byKernel(c, args)
	}
	if s.results[key] == nil {
		values := transform.Interpret(c.Meaning, args, l.node)
		s.results[key] = lists.Map(c.Meaning.Outputs,
			func(o program.Output) *graph.Node { return values[o.Value] })
	}
	return s.results[key][n.Attr.Output]
}

func callKey(c *program.Call, args []*graph.Node) string {
	return fmt.Sprintf("%p %v", c,
		lists.Map(args, func(x *graph.Node) graph.NodeId { return x.Id() }))
}

// byKernel computes a call, or the adjoint of one, or either with a sum. It returns nil if no
// kernel does.
func (s *calls) byKernel(c *program.Call, args []*graph.Node) []*graph.Node {
	name := c.Name
	for of := c.Of; of != nil; of = of.Of {
		name = of.Name
	}
	kernel, ok := s.kernels[name]
	if !ok {
		return nil
	}
	if kernel == nil {
		name := func(o program.Output) string { return o.Name }
		out := Rows(args[0].Graph(), c.Meaning, args, lists.Map(c.Meaning.Outputs, name)...)
		return lists.Map(c.Meaning.Outputs, func(o program.Output) *graph.Node { return out[o.Name] })
	}
	var sum *graph.Node
	if c.Adds {
		c, args, sum = c.Of, args[:len(args)-1], args[len(args)-1]
	}
	if c.Of == nil {
		results, back := kernel(c, args, sum)
		s.backs[callKey(c, args)] = back
		return results
	}
	forward, adjoint := c.Of, c.Meaning
	operands := args[:len(forward.Meaning.Inputs)]
	back := s.backs[callKey(forward, operands)]
	if back == nil && forward.Of == nil {
		_, back = kernel(forward, operands, nil)
	}
	if back == nil {
		return nil
	}
	d := make([]*graph.Node, len(forward.Meaning.Outputs))
	for i, o := range forward.Meaning.Outputs {
		at := adjoint.Input(autodiff.Prefix + o.Name)
		if at < 0 {
			return nil
		}
		d[i] = args[at]
	}
	all := back(d, sum)
	return lists.Map(adjoint.Outputs, func(o program.Output) *graph.Node {
		return all[forward.Meaning.Input(o.Name[len(autodiff.Prefix):])]
	})
}
