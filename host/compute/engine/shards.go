package engine

import (
	"errors"
	"fmt"
	"slices"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"

	"github.com/cage-qat/cage/host/compute/device"
)

// This file divides tensors among the replicas of a graph by rows, the parts of the first axis. Functions that build a graph pass
// on nodes of whole tensors, as with one replica. A node that was made from rows remembers them: who can do with the rows of this
// replica takes them by [Rows], and the whole, which nobody then needs, is left out of the compiled program. So a function that
// knows nothing of rows is right, and one that knows of them moves less.

// shardOf is the note of a node: this replica's rows of it.
type shardOf struct{ rows *graph.Node }

// shardedOutput is the note of an output that each replica keeps of its own.
type shardedOutput struct{}

// HasRows reports whether the rows of each replica are known of a node, without its whole.
func HasRows(x *graph.Node) bool {
	_, ok := NoteOf[shardOf](x)
	return ok
}

// Gather returns the whole of which each replica has some rows: one part after the other along the first axis, on all
// replicas. With one replica that is the node itself. Gradients do not pass through it.
func Gather(rows *graph.Node) *graph.Node {
	n := Replicas(rows.Graph())
	if n == 1 {
		return rows
	}
	out := allGather.call(rows, func(x *graph.Node) *graph.Node {
		return graph.Concatenate(slices.Repeat([]*graph.Node{x}, n), 0)
	})
	Note(out, shardOf{rows})
	return out
}

// Rows returns this replica's rows of a whole node: those that it was made from, or else a part of it. The first axis must divide
// into the number of replicas. With one replica that is the node itself. In the body of a [Loop] only nodes that were made from
// rows have them.
func Rows(x *graph.Node) *graph.Node {
	n := Replicas(x.Graph())
	if n == 1 {
		return x
	}
	if note, ok := NoteOf[shardOf](x); ok {
		return note.rows
	}
	dims := slices.Clone(x.Shape().Dimensions)
	if len(dims) == 0 || dims[0]%n != 0 {
		panic(fmt.Errorf("the rows of shape %s do not divide into %d replicas", x.Shape(), n))
	}
	dims[0] /= n
	first := graph.MulScalar(replica(x.Graph()), dims[0])
	start := make([]*graph.Node, len(dims))
	for i := range start {
		start[i] = first
		if i > 0 {
			start[i] = graph.ScalarZero(x.Graph(), dtypes.Int32)
		}
	}
	return graph.DynamicSlice(x, start, dims)
}

// ScatterSum returns the sum of a node over the replicas, of which each computes its rows only. Gradients do not pass through it.
func ScatterSum(x *graph.Node) *graph.Node {
	n := Replicas(x.Graph())
	if n == 1 {
		return x
	}
	return Gather(reduceScatter.call(x, func(x *graph.Node) *graph.Node {
		return graph.Slice(x, graph.AxisRange(0, x.Shape().Dim(0)/n))
	}))
}

// Elementwise returns f of nodes of one shape, where f computes each element from those in the same place: by rows, if they are
// known of one of the nodes.
func Elementwise(f func(in []*graph.Node) *graph.Node, nodes ...*graph.Node) *graph.Node {
	if !slices.ContainsFunc(nodes, HasRows) {
		return f(nodes)
	}
	rows := make([]*graph.Node, len(nodes))
	for i, x := range nodes {
		rows[i] = Rows(x)
	}
	return Gather(f(rows))
}

// Converted returns x in another type, by rows where these are known.
func Converted(x *graph.Node, to dtypes.DType) *graph.Node {
	return Elementwise(func(in []*graph.Node) *graph.Node { return graph.ConvertDType(in[0], to) }, x)
}

// Sharded returns the rows of this replica as an output of a graph: the buffer that [Executable.Run] returns has a part on each,
// as those of [UploadSharded].
func Sharded(rows *graph.Node) *graph.Node {
	if Replicas(rows.Graph()) == 1 {
		return rows
	}
	rows = graph.Identity(rows) // which may be an input that is also returned as it is
	Note(rows, shardedOutput{})
	return rows
}

// replicaName is the name of the input that a graph of several replicas has last, if it needs the number of each.
const replicaName = "number of the replica"

// replicaKey is the key under which a graph keeps the node of that input.
type replicaKey struct{}

// replica returns the number of this replica, a scalar.
func replica(g *graph.Graph) *graph.Node {
	node, ok := g.State(replicaKey{}).(*graph.Node)
	if !ok {
		if !g.CurrentFunc().IsMain() {
			panic(errors.New("the rows of a whole tensor, in the body of a loop: take them before it"))
		}
		node = graph.Parameter(g, replicaName, shapes.Make(dtypes.Int32, 1))
		g.AttachState(replicaKey{}, node)
	}
	return graph.Reshape(node)
}

// replicaNumbers returns the buffer of the numbers of all replicas.
func (d *Device) replicaNumbers() (*Buffer, error) {
	type result struct {
		numbers *Buffer
		err     error
	}
	r := d.Once(replicaKey{}, func() any {
		list := make([]int32, d.Count())
		for i := range list {
			list[i] = int32(i)
		}
		numbers, err := UploadSharded(d, list, len(list))
		return result{numbers, err}
	}).(result)
	return r.numbers, r.err
}

// An operation is one that GoMLX has not. A call of a function stands for it, as for a kernel, until the graph is compiled.
type operation string

const (
	allGather     operation = "all_gather" // over all replicas
	reduceScatter operation = "reduce_scatter"
)

// call returns the operation on x. body is a function of the same types, which is never executed.
func (c operation) call(x *graph.Node, body func(x *graph.Node) *graph.Node) *graph.Node {
	g := x.Graph()
	r, ok := g.Backend().(*recordingBackend)
	if !ok {
		panic(fmt.Errorf("%s: the graph is not built by a device", c))
	}
	key := string(c) + x.Shape().String()
	f, ok := r.stands[key]
	if !ok {
		name := fmt.Sprintf("%s_%d", c, len(r.stands))
		f = graph.NewFunction(g, name, func(*graph.Graph) []*graph.Node {
			in := graph.Parameter(g, "", x.Shape())
			defer ownScope(g)()
			return []*graph.Node{body(in)}
		})
		if r.stands == nil {
			r.stands, r.operations = map[string]*graph.Function{}, map[string]operation{}
		}
		r.stands[key], r.operations[name] = f, c
	}
	return f.Call(x)[0]
}

// A callee is what a function of a graph stands for, on a device: a kernel, or an operation on so many replicas.
type callee struct {
	kernel    Kernel
	operation operation
	replicas  int
}

// callees lists what the functions of a graph stand for by their names. Where the bodies of kernels are executed, these stand for nothing.
func (d *Device) callees(r *recordingBackend) map[string]callee {
	list := map[string]callee{}
	if d.options.Kernels != device.BodyKernels {
		for name, k := range r.kernels {
			list[name] = callee{kernel: k}
		}
	}
	for name, c := range r.operations {
		list[name] = callee{operation: c, replicas: d.Count()}
	}
	return list
}
