package lower

import (
	"crypto/sha256"
	encoding "encoding/binary"
	"fmt"

	"github.com/gomlx/gomlx/core/graph"

	"github.com/cage-qat/cage/host/compute/engine"
)

// scalar is a float constant.
func (l *lowering) scalar(v float64) *graph.Node { return l.table([]float64{v}) }

// integer is an integer constant as wide as a float.
func (l *lowering) integer(v int64) *graph.Node {
	if l.float.width == 64 {
		return constant(l.g, v)
	}
	return constant(l.g, int32(v))
}

// table is a float constant.
func (l *lowering) table(data []float64, shape ...int) *graph.Node {
	if l.float.width == 64 {
		return stored(l.g, data, shape)
	}
	rounded := make([]float32, len(data))
	for i, v := range data {
		rounded[i] = float32(v)
	}
	return stored(l.g, rounded, shape)
}

// constant is a scalar.
func constant[T engine.Element](g *graph.Graph, v T) *graph.Node { return stored(g, []T{v}, nil) }

// stored is a constant of the given elements. A graph has one node for equal
// constants: only so do devices recognize equal operations on them.
func stored[T engine.Element](g *graph.Graph, data []T, shape []int) *graph.Node {
	h := sha256.New()
	// Writing a slice of numbers or bools to a hash cannot fail.
	_ = encoding.Write(h, encoding.LittleEndian, data)
	key := fmt.Sprintf("%T %v %x", data, shape, h.Sum(nil))
	return shared(g, key, func() *graph.Node { return engine.Constant(g, data, shape...) })
}

// sharedNodes is the key of a graph's state under which shared keeps the nodes of one of
// its functions: the body of a loop cannot use those of another.
type sharedNodes struct{ of *graph.Function }

// shared returns the node of this function of the graph with that key, which create makes
// the first time.
func shared(g *graph.Graph, key string, create func() *graph.Node) *graph.Node {
	function := sharedNodes{g.CurrentFunc()}
	nodes, ok := g.State(function).(map[string]*graph.Node)
	if !ok {
		nodes = map[string]*graph.Node{}
		g.AttachState(function, nodes)
	}
	node, ok := nodes[key]
	if !ok {
		node = create()
		nodes[key] = node
	}
	return node
}
