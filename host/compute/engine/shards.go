package engine

import (
	"errors"
	"fmt"
	"slices"

	"github.com/cage-qat/cage/host/compute/graph"
	"github.com/cage-qat/cage/host/compute/shapes"
	"github.com/cage-qat/cage/internal/lists"
)

// This file shards tensors among the replicas of a graph by rows (along the first axis). Functions
// that build graphs pass nodes of whole tensors to each other, as with one replica. A node gathered
// from shards has a note with the local shard. Code that needs only the local rows gets them from
// [Rows], and the compiler eliminates the all-gather if it is unused. So functions may ignore
// sharding, but those that use it communicate less.

// shardOf is a note that holds this replica's rows of a node.
type shardOf struct{ rows *graph.Node }

type shardedOutput struct{}

// HasRows reports whether each replica's rows of a node are available without the whole tensor.
func HasRows(x *graph.Node) bool {
	_, ok := graph.NoteOf[shardOf](x)
	return ok
}

// Gather all-gathers the rows of all replicas: it concatenates them along the first axis, on every
// replica. With one replica it returns rows.
func Gather(rows *graph.Node) *graph.Node {
	if rows.Graph().Replicas() == 1 {
		return rows
	}
	out := graph.AllGather(rows)
	graph.Note(out, shardOf{rows})
	return out
}

// Rows returns this replica's rows of a whole tensor: the rows that it was gathered from, or else a
// slice of it. The first axis must be divisible by the number of replicas. With one replica it
// returns x. In the body of a [Loop] it works only for gathered nodes.
func Rows(x *graph.Node) *graph.Node {
	n := x.Graph().Replicas()
	if n == 1 {
		return x
	}
	if note, ok := graph.NoteOf[shardOf](x); ok {
		return note.rows
	}
	dims := slices.Clone(x.Shape().Dimensions)
	if len(dims) == 0 || dims[0]%n != 0 {
		panic(fmt.Errorf("shape %s: the first axis is not a multiple of %d replicas", x.Shape(), n))
	}
	dims[0] /= n
	first := graph.MulScalar(replica(x.Graph()), dims[0])
	start := make([]*graph.Node, len(dims))
	for i := range start {
		start[i] = first
		if i > 0 {
			start[i] = graph.Const(x.Graph(), int32(0))
		}
	}
	return graph.DynamicSlice(x, start, dims)
}

// ScatterSum returns this replica's rows of the sum of a node over all replicas, computed by
// reduce-scatter.
func ScatterSum(x *graph.Node) *graph.Node {
	if x.Graph().Replicas() == 1 {
		return x
	}
	return Gather(graph.ReduceScatter(x))
}

// Elementwise returns f(nodes) for an elementwise f and nodes of one shape. If [HasRows] holds for
// one of the nodes, each replica computes only its rows.
func Elementwise(f func(in []*graph.Node) *graph.Node, nodes ...*graph.Node) *graph.Node {
	if !slices.ContainsFunc(nodes, HasRows) {
		return f(nodes)
	}
	rows := lists.Map(nodes, Rows)
	return Gather(f(rows))
}

// Converted converts x to another element type, each replica its own rows if [HasRows] holds.
func Converted(x *graph.Node, to shapes.DType) *graph.Node {
	return Elementwise(func(in []*graph.Node) *graph.Node { return graph.ConvertDType(in[0], to) }, x)
}

// Sharded marks this replica's rows as a sharded output of a graph: [Executable.Run] returns it as
// a sharded buffer, like that of [UploadSharded].
func Sharded(rows *graph.Node) *graph.Node {
	if rows.Graph().Replicas() == 1 {
		return rows
	}
	rows = graph.Copy(rows) // rows may be an input that is also an output
	graph.Note(rows, shardedOutput{})
	return rows
}

// replicaName is the name of the last input of graphs that need the replica index.
const replicaName = "number of the replica"

// replicaKey is the key under which a graph keeps its replica index node.
type replicaKey struct{}

func replica(g *graph.Graph) *graph.Node {
	node, ok := g.State(replicaKey{}).(*graph.Node)
	if !ok {
		if !g.InMain() {
			panic(errors.New("a loop body cannot slice a whole tensor: call Rows before the loop"))
		}
		node = graph.Parameter(g, replicaName, shapes.Make(shapes.Int32, 1))
		g.Attach(replicaKey{}, node)
	}
	return graph.Reshape(node)
}

func (d *Device) replicaNumbers() (*Buffer, error) {
	type result struct {
		numbers *Buffer
		err     error
	}
	r := d.Once(replicaKey{}, func() any {
		list := lists.Make(d.Count(), func(i int) int32 { return int32(i) })
		numbers, err := UploadSharded(d, list, true, len(list))
		return result{numbers, err}
	}).(result)
	return r.numbers, r.err
}
