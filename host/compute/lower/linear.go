package lower

import (
	"fmt"
	"math"
	"math/bits"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"

	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/compute/loops"
	"github.com/cage-qat/cage/sdk/program"
)

func lowerDot(_ *lowering, n *program.Node, args []*graph.Node) *graph.Node {
	a := n.Attr
	if len(a.LhsContract) == 0 { // each operand gets an axis of size 1 that is contracted
		x, y := graph.InsertAxes(args[0], -1), graph.InsertAxes(args[1], -1)
		return graph.DotGeneral(x, []int{x.Rank() - 1}, a.LhsBatch, y, []int{y.Rank() - 1}, a.RhsBatch)
	}
	return engine.ExactDot(args[0], a.LhsContract, a.LhsBatch, args[1], a.RhsContract, a.RhsBatch)
}

// largestBlock is the largest rotation computed as one product with its matrix.
const largestBlock = 256

// lowerHadamard rotates each run of block elements. A large block is split: the
// matrix of natural order is the Kronecker product of two smaller ones,
// H(ab) = H(a) ⊗ H(b), so that a + b products for each element replace ab.
func lowerHadamard(l *lowering, n *program.Node, args []*graph.Node) *graph.Node {
	if l.gobackend && l.float == single && engine.DeviceOf(l.g).Fuses() {
		// The same algorithm as in package cpu.
		x, block := args[0], n.Attr.Block
		each := max(block, 1<<14/block*block) // elements of a task
		return engine.Native{Name: "rotation", Outputs: []shapes.Shape{x.Shape()}, Run: func(in, out []engine.Tensor, parallel engine.Parallel) error {
			from, to := floats(in[0]), floats(out[0])
			parallel((len(to)+each-1)/each, func(i int) {
				last := min(len(to), (i+1)*each)
				loops.Rotate(to[i*each:last], from[i*each:last], block)
			})
			return nil
		}}.Call(x)[0]
	}
	runs := int(n.Type.Size()) / n.Attr.Block
	return graph.Reshape(l.rotate(args[0], runs, n.Attr.Block), n.Type.Shape...)
}

// rotateByKernel lowers a rotation to a kernel. ok is false if that is impossible, or if the node is not a rotation.
func (l *lowering) rotateByKernel(n *program.Node, args []*graph.Node) (y *graph.Node, ok bool) {
	if n.Op != program.OpHadamard || !l.kernels || l.float != single || !hasTriton(engine.DeviceOf(l.g)) {
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
	out, ok := Kernel(l.g, subjectOf(p, rows, false), p, rows, []*graph.Node{graph.Reshape(args[0], rows, width)}, nil)
	if !ok {
		return nil, false
	}
	return graph.Reshape(out["y"], n.Type.Shape...), true
}

// rotate multiplies each of the runs of block elements in x, of any shape, by the
// matrix. The caller reshapes the result.
func (l *lowering) rotate(x *graph.Node, runs, block int) *graph.Node {
	if !l.gobackend && l.float == single && engine.InBFloat16(l.g) {
		return l.rotateSplit(x, block)
	}
	if block <= largestBlock {
		return l.rotateRows(x, block)
	}
	trail := min(largestBlock, 1<<(bits.Len(uint(block))/2))
	lead := block / trail
	x = graph.Reshape(l.rotateRows(x, trail), runs, lead, trail)
	x = l.rotate(graph.TransposeAllAxes(x, 0, 2, 1), runs*trail, lead)
	return graph.TransposeAllAxes(graph.Reshape(x, runs, trail, lead), 0, 2, 1)
}

// rotateRows views x as a matrix with rows of size elements, and multiplies it by the Walsh–Hadamard matrix.
func (l *lowering) rotateRows(x *graph.Node, size int) *graph.Node {
	x = graph.Reshape(x, x.Shape().Size()/size, size)
	return graph.DotGeneral(x, []int{1}, nil, l.hadamard(size), []int{0}, nil)
}

// butterflies views x as matrices of the given number of rows, a power of two, with rows of size elements. It multiplies each
// matrix from the left by the matrix of ±1 of natural order. Each step adds and subtracts whole rows, which a GPU fuses with
// the operations that follow.
func butterflies(x *graph.Node, rows, size int) *graph.Node {
	for half := 1; half < rows; half *= 2 {
		x = graph.Reshape(x, x.Shape().Size()/(2*half*size), 2, half*size)
		upper, lower := graph.SliceAxis(x, 1, graph.AxisElem(0)), graph.SliceAxis(x, 1, graph.AxisElem(1))
		x = graph.Concatenate([]*graph.Node{graph.Add(upper, lower), graph.Sub(upper, lower)}, 1)
	}
	return x
}

// rotateSplit is rotate with bfloat16 products, which are fifteen times as fast as float32 products
// on a GPU: each element is split into the sum of two bfloat16 numbers, and the signs of the matrix
// are exact. The relative error of an element is at most 2⁻¹⁷. In a block of more than largestBlock
// elements, one of the two factors is applied by sums of rows; a second product would need
// transpositions.
func (l *lowering) rotateSplit(x *graph.Node, block int) *graph.Node {
	size := min(block, largestBlock)
	x = butterflies(x, block/size, size)
	x = graph.Reshape(x, x.Shape().Size()/size, size)
	// The upper half is rounded by bit operations: XLA may elide a conversion to bfloat16 and back,
	// which would make the lower half zero.
	const half, mask = 1 << 15, 0xffff_0000
	number := func(v uint32) *graph.Node { return graph.Const(l.g, v) }
	rounded := graph.Add(graph.Bitcast(x, dtypes.Uint32), number(half))
	high := graph.Bitcast(graph.BitwiseAnd(rounded, number(mask)), x.DType())
	low := graph.Sub(x, high)
	halves := graph.ConvertDType(graph.Concatenate([]*graph.Node{high, low}, 1), dtypes.BFloat16)
	matrix := sharedNode(l.g, fmt.Sprint("hadamard signs twice ", size), func() *graph.Node {
		signs := graph.ConvertDType(l.table(walsh(size, 1), size, size), dtypes.BFloat16)
		return graph.Concatenate([]*graph.Node{signs, signs}, 0)
	})
	sums := engine.DotGeneral(halves, []int{1}, nil, matrix, []int{0}, nil)
	return graph.MulScalar(sums, 1/math.Sqrt(float64(block)))
}

// hadamard returns the normalized Walsh–Hadamard matrix of natural order. It is created once per
// graph.
func (l *lowering) hadamard(size int) *graph.Node {
	return sharedNode(l.g, fmt.Sprint("hadamard ", l.float.dtype, size), func() *graph.Node {
		return l.table(walsh(size, 1/math.Sqrt(float64(size))), size, size)
	})
}

// walsh returns the elements of the Walsh–Hadamard matrix of natural order, times norm.
func walsh(size int, norm float64) []float64 {
	data := make([]float64, size*size)
	for i := range data {
		data[i] = norm
		if bits.OnesCount(uint(i/size&(i%size)))%2 == 1 {
			data[i] = -norm
		}
	}
	return data
}
