package lower

import (
	"fmt"

	"github.com/cage-qat/cage/host/compute/graph"
	"github.com/cage-qat/cage/host/compute/shapes"
	"github.com/cage-qat/cage/internal/lists"
	"github.com/cage-qat/cage/sdk/program"
)

// Lower adds the operations of p, which must be valid, to the graph and returns the nodes
// of its outputs by name. inputs are the program's inputs in order, with the declared
// shapes and the types Float32, Int32, Uint32 and Bool.
//
// Equal operations are executed once, even if they come from several calls of Lower for one graph.
// The sign of zeros returned by round, max and min is undefined. If inputs are sharded by rows
// ([engine.HasRows]), each replica computes its own rows.
//
// Like other functions that build graphs, Lower panics on a mistake: with an [*UnsupportedError]
// for a factorization, otherwise with an error that names the faulty node or input.
func Lower(g *graph.Graph, p *program.Program, inputs []*graph.Node) map[string]*graph.Node {
	out := newEvaluation(g, p, inputs, nil, "", false).outputs()
	for name, x := range out {
		out[name] = asFloat(x)
	}
	return out
}

// Outputs is like [Lower] but returns the outputs as a list, in the order of the program.
func Outputs(g *graph.Graph, p *program.Program, inputs []*graph.Node) []*graph.Node {
	return inOrder(p, Lower(g, p, inputs))
}

// inOrder returns the outputs of p as a list, given them by name.
func inOrder(p *program.Program, named map[string]*graph.Node) []*graph.Node {
	return lists.Map(p.Outputs, func(o program.Output) *graph.Node { return named[o.Name] })
}

type lowering struct {
	g       *graph.Graph
	p       *program.Program
	kernels bool // rotations are kernels, where the device has them
}

// dtypeOf returns the type of elements of a program's values on a device.
func dtypeOf(d program.DType) shapes.DType {
	switch d {
	case program.Float:
		return shapes.Float32
	case program.Int:
		return shapes.Int32
	case program.Uint:
		return shapes.Uint32
	default:
		return shapes.Bool
	}
}

// ShapeOf returns the shape of a program's value on a device.
func ShapeOf(t program.Type) shapes.Shape { return shapes.Make(dtypeOf(t.DType), t.Shape...) }

// rule lowers one node of the program, given its lowered operands.
type rule func(l *lowering, n *program.Node, args []*graph.Node) *graph.Node

// node lowers the node that defines id and checks that the result has the declared type.
func (l *lowering) node(id program.ID, n *program.Node, args []*graph.Node) (out *graph.Node) {
	defer func() {
		if r := recover(); r != nil {
			panic(fmt.Errorf("program %q: %%%d = %s: %w", l.p.Name, id, n.Op, asError(r)))
		}
	}()
	if y, ok := l.rotateByKernel(n, args); ok {
		return y
	}
	out = rules[n.Op](l, n, args)
	if want := ShapeOf(n.Type); !out.Shape().Equal(want) {
		panic(fmt.Errorf("lowered to shape %s, want %s", out.Shape(), want))
	}
	return out
}

// asError returns the value of a panic as an error.
func asError(r any) error {
	if err, ok := r.(error); ok {
		return err
	}
	return fmt.Errorf("%v", r)
}

// UnsupportedError reports an operation that no device can execute, and the reason.
type UnsupportedError struct {
	Program string
	Op      program.Op
	Reason  string
}

// Error implements the error interface.
func (e *UnsupportedError) Error() string {
	return fmt.Sprintf("program %q: %s is not available on a device: %s", e.Program, e.Op, e.Reason)
}

// Check returns nil if a device can execute p, otherwise an [*UnsupportedError].
func Check(p *program.Program) error {
	for _, n := range p.Nodes {
		if reason, ok := unsupported[n.Op]; ok {
			return &UnsupportedError{Program: p.Name, Op: n.Op, Reason: reason}
		}
	}
	return nil
}
