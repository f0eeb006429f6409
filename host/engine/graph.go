package engine

import (
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/gobackend"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"
)

// Constant returns a node with the given elements, in row-major order, and dimensions. It is the way to put a large
// table into a graph: GoMLX walks nested slices element by element with reflection. It builds graphs and panics when
// the elements do not fill the dimensions.
func Constant[T Element](g *graph.Graph, data []T, dims ...int) *graph.Node {
	if _, err := makeShape(dtypes.FromGenericsType[T](), len(data), dims); err != nil {
		panic(err)
	}
	return graph.ConstTensor(g, tensors.FromFlatDataAndDimensions(data, dims...))
}

// OnCPU reports whether the graph is built for the CPU device, for code that gets the same numbers faster in another
// way there.
func OnCPU(g *graph.Graph) bool { return g.Backend().String() == gobackend.BackendName }
