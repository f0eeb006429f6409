package engine

import (
	"errors"
	"fmt"

	"github.com/gomlx/gomlx/core/graph"
)

// LoopBody computes the next state of a loop from the number of the iteration, an int32 scalar that counts from 0; from
// fixed values, which are the same in all iterations; and from the state, whose shapes it keeps. It uses no other
// nodes.
type LoopBody func(i *graph.Node, fixed, state []*graph.Node) []*graph.Node

// Loop applies a body n times to a state, using the memory of one iteration, and returns the last state. It has no
// gradient. On the CPU the loop is unrolled in the graph: GoMLX v0.28.16 compiles the body of a loop before a pass that
// changes the body, and a loop with broadcasts in it fails when it runs.
func Loop(g *graph.Graph, n int, fixed, state []*graph.Node, body LoopBody) []*graph.Node {
	if OnCPU(g) {
		for i := range n {
			state = body(graph.Const(g, int32(i)), fixed, state)
		}
		return state
	}
	all := append(append([]*graph.Node{graph.Const(g, int32(0))}, fixed...), state...)
	more := closure(g, all, func(in []*graph.Node) []*graph.Node {
		return []*graph.Node{graph.LessThan(in[0], graph.Const(g, int32(n)))}
	})
	round := closure(g, all, func(in []*graph.Node) []*graph.Node {
		i, fixed, state := in[0], in[1:1+len(fixed)], in[1+len(fixed):]
		next := append([]*graph.Node{graph.Add(i, graph.Const(g, int32(1)))}, fixed...)
		return append(next, body(i, fixed, state)...)
	})
	return graph.While(more, round, all...)[1+len(fixed):]
}

// closure is a function of a loop with parameters of the shapes of like. Each has a name of its own, because in
// XLA's text a loop in the body of another sees the names of that body.
func closure(g *graph.Graph, like []*graph.Node, build func(in []*graph.Node) []*graph.Node) *graph.Function {
	r, ok := g.Backend().(*recording)
	if !ok {
		panic(errors.New("a loop: the graph is not built by a device"))
	}
	r.closures++
	prefix := fmt.Sprintf("closure%d_", r.closures)
	return graph.NewClosure(g, func(*graph.Graph) []*graph.Node {
		in := make([]*graph.Node, len(like))
		for i, node := range like {
			in[i] = graph.Parameter(g, fmt.Sprint(prefix, i), node.Shape())
		}
		defer ownScope(g)()
		return build(in)
	})
}
