// Package graph builds programs of StableHLO operations, which XLA compiles for accelerators.
//
// Functions that add operations panic on a mistake, such as operands whose shapes do not match.
// They add to the function of the graph that is being built: the main function or, in [While], the
// body of a loop, which uses only its own nodes.
package graph

import (
	"errors"
	"fmt"
	"slices"

	"github.com/cage-qat/cage/host/compute/shapes"
	"github.com/cage-qat/cage/internal/lists"
)

// A Graph is a program.
type Graph struct {
	name          string
	replicas      int
	main, current *Function
	state         map[any]any
}

// A Function maps parameters to results.
type Function struct {
	Parameters []*Node
	Operations []*Operation
	Results    []*Node

	names  []string // of parameters
	shared map[string]*Node
}

// An Operation computes nodes from others.
type Operation struct {
	Name       string // in StableHLO
	Args       []*Node
	Results    []*Node
	Attributes []Attribute
	Bodies     []*Function // of loops, and of reductions
	// Data has the elements of a constant, or one element, which is repeated.
	Data any
}

// An Attribute of an operation is an int, a []int, or text in MLIR.
type Attribute struct {
	Name  string
	Value any
}

// A Node is a tensor that a graph computes.
type Node struct {
	graph    *Graph
	function *Function
	op       *Operation // nil for parameters
	shape    shapes.Shape
	notes    []any
}

// New returns an empty graph for a number of replicas.
func New(name string, replicas int) *Graph {
	main := &Function{}
	return &Graph{name: name, replicas: replicas, main: main, current: main, state: map[any]any{}}
}

// Replicas returns the number of replicas.
func (g *Graph) Replicas() int { return g.replicas }

// Main returns the main function.
func (g *Graph) Main() *Function { return g.main }

// InMain reports whether the main function is being built.
func (g *Graph) InMain() bool { return g.current == g.main }

// State returns what is attached to the graph by a key, or nil.
func (g *Graph) State(key any) any { return g.state[key] }

// Attach attaches a value to the graph, for code that uses the graph later.
func (g *Graph) Attach(key, value any) { g.state[key] = value }

// Shared returns the node with a key in the function that is being built. It calls create if there
// is none yet.
func (g *Graph) Shared(key string, create func() *Node) *Node {
	f := g.current
	if f.shared == nil {
		f.shared = map[string]*Node{}
	}
	if f.shared[key] == nil {
		f.shared[key] = create()
	}
	return f.shared[key]
}

// Parameter adds a parameter to the function that is being built.
func Parameter(g *Graph, name string, shape shapes.Shape) *Node {
	if name != "" && slices.Contains(g.current.names, name) {
		fail("there is already a parameter with name %q", name)
	}
	n := &Node{graph: g, function: g.current, shape: shape}
	g.current.Parameters = append(g.current.Parameters, n)
	g.current.names = append(g.current.names, name)
	return n
}

// Return sets the results of the main function.
func (g *Graph) Return(results []*Node) {
	for _, n := range results {
		g.check(n)
	}
	g.main.Results = results
}

// Graph returns the node's graph.
func (n *Node) Graph() *Graph { return n.graph }

// Shape returns the shape.
func (n *Node) Shape() shapes.Shape { return n.shape }

// DType returns the type of the elements.
func (n *Node) DType() shapes.DType { return n.shape.DType }

// Rank returns the number of dimensions.
func (n *Node) Rank() int { return n.shape.Rank() }

// IsScalar reports whether the node has no dimensions.
func (n *Node) IsScalar() bool { return n.shape.IsScalar() }

// Operation returns the operation that computes the node; nil for a parameter.
func (n *Node) Operation() *Operation { return n.op }

// String returns the name of the operation, and the shape.
func (n *Node) String() string {
	if n.op == nil {
		return "parameter " + n.shape.String()
	}
	return n.op.Name + " " + n.shape.String()
}

// Note attaches a note to a node, for code that uses the node later. A later note of the same type
// takes precedence.
func Note(n *Node, what any) { n.notes = append(n.notes, what) }

// NoteOf returns the note of type T attached to a node; ok is false if there is none.
func NoteOf[T any](n *Node) (note T, ok bool) {
	for _, what := range slices.Backward(n.notes) {
		if note, ok = what.(T); ok {
			return note, true
		}
	}
	return note, false
}

// CopyNotes attaches the notes of node src to node dst.
func CopyNotes(dst, src *Node) { dst.notes = append(dst.notes, src.notes...) }

func fail(format string, a ...any) { panic(fmt.Errorf(format, a...)) }

// check panics if the function that is being built cannot use n.
func (g *Graph) check(n *Node) {
	switch {
	case n == nil:
		panic(errors.New("an operand is nil"))
	case n.graph != g:
		fail("%s is of another graph", n)
	case n.function != g.current:
		fail("%s is of another function: the body of a loop uses only its arguments", n)
	}
}

// add adds an operation with results of the given shapes.
func (g *Graph) add(op *Operation, results ...shapes.Shape) []*Node {
	for _, arg := range op.Args {
		g.check(arg)
	}
	op.Results = lists.Map(results, func(s shapes.Shape) *Node {
		return &Node{graph: g, function: g.current, op: op, shape: s.Clone()}
	})
	g.current.Operations = append(g.current.Operations, op)
	return op.Results
}

// apply adds an operation with one result. It needs an operand.
func apply(name string, result shapes.Shape, args []*Node, attributes ...Attribute) *Node {
	op := &Operation{Name: name, Args: args, Attributes: attributes}
	return args[0].graph.add(op, result)[0]
}

// build returns the function that body adds to, with parameters of the given shapes.
func (g *Graph) build(parameters []shapes.Shape, body func(in []*Node) []*Node) *Function {
	outside := g.current
	g.current = &Function{}
	defer func() { g.current = outside }()
	in := lists.Map(parameters, func(s shapes.Shape) *Node { return Parameter(g, "", s) })
	g.current.Results = body(in)
	for _, n := range g.current.Results {
		g.check(n)
	}
	return g.current
}

// shapesOf returns the shapes of nodes.
func shapesOf(nodes []*Node) []shapes.Shape { return lists.Map(nodes, (*Node).Shape) }

// While returns the values of the last iteration of a loop. As long as more returns true, the
// values are replaced by those that body returns.
func While(more func(in []*Node) *Node, body func(in []*Node) []*Node, values []*Node) []*Node {
	g, list := values[0].graph, shapesOf(values)
	condition := g.build(list, func(in []*Node) []*Node { return []*Node{more(in)} })
	next := g.build(list, body)
	if got := shapesOf(next.Results); !slices.EqualFunc(got, list, shapes.Shape.Equal) {
		fail("the body of a loop returns %v, want %v", got, list)
	}
	op := &Operation{Name: "while", Args: values, Bodies: []*Function{condition, next}}
	return g.add(op, list...)
}

// Barrier returns the nodes, which become available together. A compiler computes nothing across.
func Barrier(nodes ...*Node) []*Node {
	op := &Operation{Name: "optimization_barrier", Args: nodes}
	return nodes[0].graph.add(op, shapesOf(nodes)...)
}

// CustomCall calls a function of the compiler, which is called target. Attributes are those that
// StableHLO's operation has besides.
func CustomCall(target string, args []*Node, results []shapes.Shape,
	attributes ...Attribute) []*Node {
	op := &Operation{Name: "custom_call", Args: args,
		Attributes: append([]Attribute{{"call_target_name", Quoted(target)}}, attributes...)}
	return args[0].graph.add(op, results...)
}
