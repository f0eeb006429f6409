package lower

import (
	"fmt"
	"math"
	"math/bits"

	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/compute/graph"
	"github.com/cage-qat/cage/sdk/program"
)

func lowerDot(_ *lowering, n *program.Node, args []*graph.Node) *graph.Node {
	a := n.Attr
	return engine.ExactDot(args[0], a.LhsContract, a.LhsBatch, args[1], a.RhsContract, a.RhsBatch)
}

// largestBlock is the largest rotation that is computed as one product with its matrix.
const largestBlock = 256

// lowerHadamard rotates each run of block elements. A large block is split: the natural-order
// matrix is a Kronecker product, H(ab) = H(a) ⊗ H(b), so that each element takes a + b
// multiplications instead of ab.
func lowerHadamard(l *lowering, n *program.Node, args []*graph.Node) *graph.Node {
	runs := int(n.Type.Size()) / n.Attr.Block
	return graph.Reshape(l.rotate(args[0], runs, n.Attr.Block), n.Type.Shape...)
}

// rotateByKernel lowers a rotation to a kernel. ok is false if that is impossible or the node is
// not a rotation.
func (l *lowering) rotateByKernel(n *program.Node, args []*graph.Node) (y *graph.Node, ok bool) {
	if n.Op != program.OpHadamard || !l.kernels || !hasTriton(engine.DeviceOf(l.g)) {
		return nil, false
	}
	width := n.Type.Shape[len(n.Type.Shape)-1]
	rows := int(n.Type.Size()) / width
	b := program.NewBuilder("rotation/rows")
	b.Output("y", b.Input("x", program.FloatType(rows, width)).Hadamard(n.Attr.Block))
	p, err := b.Build()
	if err != nil {
		panic(err)
	}
	x := []*graph.Node{graph.Reshape(args[0], rows, width)}
	out, ok := Kernel(l.g, subjectOf(p, rows, false), p, rows, x, nil)
	if !ok {
		return nil, false
	}
	return graph.Reshape(out["y"], n.Type.Shape...), true
}

// rotate multiplies each run of block elements of x, which may have any shape, by the matrix. The
// caller reshapes the result.
func (l *lowering) rotate(x *graph.Node, runs, block int) *graph.Node {
	if block <= largestBlock {
		return l.rotateRows(x, block)
	}
	trail := min(largestBlock, 1<<(bits.Len(uint(block))/2))
	lead := block / trail
	x = graph.Reshape(l.rotateRows(x, trail), runs, lead, trail)
	x = l.rotate(graph.TransposeAllAxes(x, 0, 2, 1), runs*trail, lead)
	return graph.TransposeAllAxes(graph.Reshape(x, runs, trail, lead), 0, 2, 1)
}

// rotateRows views x as a matrix with rows of size elements, and multiplies it by the normalized
// Walsh–Hadamard matrix in natural order.
func (l *lowering) rotateRows(x *graph.Node, size int) *graph.Node {
	matrix := l.g.Shared(fmt.Sprint("hadamard ", size), func() *graph.Node {
		return l.table(walsh(size), size, size)
	})
	x = graph.Reshape(x, x.Shape().Size()/size, size)
	return engine.ExactDot(x, []int{1}, nil, matrix, []int{0}, nil)
}

// walsh returns the elements of the normalized Walsh–Hadamard matrix in natural order.
func walsh(size int) []float64 {
	norm := 1 / math.Sqrt(float64(size))
	data := make([]float64, size*size)
	for i := range data {
		data[i] = norm
		if bits.OnesCount(uint(i/size&(i%size)))%2 == 1 {
			data[i] = -norm
		}
	}
	return data
}
