package engine

import (
	"reflect"

	"github.com/gomlx/gomlx/core/graph"
)

// LoopBody computes the next state of a loop from the number of the round, an int32 scalar that counts from 0, from
// what is the same in all rounds, and from the state, whose shapes it keeps. It uses no other nodes.
type LoopBody func(i *graph.Node, fixed, state []*graph.Node) []*graph.Node

// Loop applies a body n times to a state, with the memory of one round, and returns the last state. There is no gradient
// through it. On the CPU the rounds follow one another in the graph: GoMLX v0.28.16 compiles the body of a loop for it
// before a pass that changes the body, and with most broadcasts in it the loop fails when it runs.
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

// closure is a function of a loop with parameters of the shapes of like.
func closure(g *graph.Graph, like []*graph.Node, build func(in []*graph.Node) []*graph.Node) *graph.Function {
	return graph.NewClosure(g, func(*graph.Graph) []*graph.Node {
		in := make([]*graph.Node, len(like))
		for i, node := range like {
			in[i] = graph.Parameter(g, "", node.Shape())
		}
		defer ownCaches(g)()
		return build(in)
	})
}

// ownCaches lets the function that is being built have constants and reductions of its own, until the returned function
// is called. GoMLX hands out the same node for a scalar that a graph has already, and go-xla the same function for a
// reduction, but go-xla v0.4.13 cannot use inside of a function what is outside of it, nor the reverse. The fields that
// remember them are hidden, hence the reflection; one that is not there has nothing to forget.
func ownCaches(g *graph.Graph) (restore func()) {
	list := hiddenMaps(g, "scalars")
	if r, ok := g.Backend().(*recording); ok {
		list = append(list, hiddenMaps(r.builder, "cacheReductions", "cacheArgMinMax", "cacheSelections")...)
	}
	outside := make([]reflect.Value, len(list))
	for i, field := range list {
		outside[i] = reflect.New(field.Type()).Elem()
		outside[i].Set(field)
		field.Set(reflect.MakeMap(field.Type()))
	}
	return func() {
		for i, field := range list {
			field.Set(outside[i])
		}
	}
}

// hiddenMaps are those of the named fields of a struct that are maps.
func hiddenMaps(of any, names ...string) []reflect.Value {
	var list []reflect.Value
	for _, name := range names {
		field := reflect.Indirect(reflect.ValueOf(of)).FieldByName(name)
		if field.IsValid() && field.Kind() == reflect.Map {
			list = append(list, reflect.NewAt(field.Type(), field.Addr().UnsafePointer()).Elem())
		}
	}
	return list
}
