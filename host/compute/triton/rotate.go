package triton

import (
	"fmt"
	"math"
	"math/bits"
	"strconv"
	"strings"

	"github.com/cage-qat/cage/host/compute/passes"
	"github.com/cage-qat/cage/sdk/program"
)

// largestMatrix is the largest rotation that is computed as one product. That takes size/16
// multiplications of 16 × 16 for each 16 × 16 elements, and half as many reads of the matrix. Two
// products take only two multiplications, but the elements must be rearranged in between.
const largestMatrix = 64

// A rotation describes how runs of elements are rotated: by one product with a matrix of signs, or
// by two. For two, each run is viewed as a matrix whose rows and then columns are rotated, because
// H(ab) = H(a) ⊗ H(b) in natural order.
type rotation struct {
	block   int
	rows    int // elements in a row
	columns int // of the matrices; 1 for one product
}

func rotationOf(block int) rotation {
	if block <= largestMatrix {
		return rotation{block, block, 1}
	}
	rows := 1 << (bits.Len(uint(block)) / 2)
	return rotation{block, rows, max(block/rows, leastDot)}
}

// fits reports whether a tile of the given number of elements is large enough for the products.
func (r rotation) fits(size int) bool {
	if r.rows < leastDot || size/r.rows < leastDot {
		return false
	}
	return r.columns == 1 || size%(r.rows*r.columns) == 0 && size/r.columns >= leastDot
}

// inner returns the size of the contracted axis of the last product.
func (r rotation) inner() int {
	if r.columns > 1 {
		return r.columns
	}
	return r.rows
}

// hadamard rotates runs of elements by products with matrices of ±1.
func (w *writer) hadamard(n *program.Node, args []value) value {
	l, _ := w.layout(n.Type)
	x, r := w.broadcastTo(args[0], w.dims(l)), rotationOf(n.Attr.Block)
	size := passes.Elements(x.dims)
	if piece := w.piece(l); piece.size < piece.padded && r.rows*r.columns > r.block {
		// A matrix has several runs. Padding may be NaN, and so is its product with zero.
		x = w.pad(x, len(x.dims)-len(l.Row)+l.first(), piece.size, 0)
	}
	if !r.fits(size) {
		panic(w.current(fmt.Sprintf("a tile of %d elements is too small to rotate blocks of %d",
			size, r.block)))
	}
	scale := 1 / math.Sqrt(float64(r.block))
	within := 1.0 // of the factor, in the matrix
	if bits.TrailingZeros(uint(r.block))%2 == 0 {
		within, scale = scale, 1 // a power of two, exact in bfloat16
	}
	if !x.inBFloat16 {
		// Without this impure operation, Triton would compute the operand in the product's layout,
		// redundantly in each thread that holds a copy of an element.
		x = w.inline("f32", x.dims, "{ mov.b32 $0, $1; }", "=f,f", 1, false, x)
	}
	var y value
	if r.columns == 1 {
		y = w.rotateRows(w.reshapeTo(x, []int{size / r.rows, r.rows}), r.block, within)
	} else {
		// If a run has fewer columns than a product needs, several runs form one matrix. The first
		// product multiplies transposed matrices: its result then has the register layout of the
		// second product's operand, and no data moves between threads.
		matrices := size / (r.rows * r.columns)
		y = w.rotateColumns(w.transpose(w.reshapeTo(x, []int{size / r.rows, r.rows}), 1, 0), r.rows, 1)
		y = w.transpose(w.reshapeTo(y, []int{r.rows, matrices, r.columns}), 1, 0, 2)
		y = w.rotateRows(w.reshapeTo(y, []int{size / r.columns, r.columns}), r.block/r.rows, within)
		y = w.transpose(w.reshapeTo(y, []int{matrices, r.rows, r.columns}), 0, 2, 1)
	}
	if scale != 1 {
		y = w.apply("arith.mulf", y, w.number(y, scale))
	}
	return w.reshapeTo(y, x.dims)
}

func (w *writer) transpose(x value, order ...int) value {
	dims, list := make([]int, len(order)), make([]string, len(order))
	for i, axis := range order {
		dims[i], list[i] = x.dims[axis], strconv.Itoa(axis)
	}
	return w.rearrange("tt.trans", x, dims, " {order = array<i32: "+strings.Join(list, ", ")+">}")
}

// rotateRows multiplies each run of block elements in the rows of a matrix on the right by a matrix
// of ±1, times factor. rotateColumns does the same for columns, on the left. The products have
// bfloat16 operands and float32 accumulation. Elements that are not exact in bfloat16 are split
// into two parts, with a relative error of at most 2⁻¹⁷.
func (w *writer) rotateRows(x value, block int, factor float64) value {
	signs := w.signs(x.dims[1], block, factor)
	return w.halves(x, func(half, sum value) value { return w.dot(half, signs, sum) })
}

func (w *writer) rotateColumns(x value, block int, factor float64) value {
	signs := w.signs(x.dims[0], block, factor)
	return w.halves(x, func(half, sum value) value { return w.dot(signs, half, sum) })
}

// halves accumulates the products of the two parts of x: x rounded to bfloat16, and the remainder.
// Adjacent elements are rounded in pairs, because the instruction that rounds one element takes
// four times as long.
func (w *writer) halves(x value, product func(half, sum value) value) value {
	zero := w.number(x, 0)
	if x.inBFloat16 {
		return product(w.cast("arith.truncf", x, "bf16"), zero)
	}
	high := w.pairs("bf16", "{ cvt.rn.bf16x2.f32 $0, $2, $1; }", x)
	low := w.pairs("bf16", "{ .reg .b32 a, b; shl.b32 a, $3, 16; and.b32 b, $3, 0xFFFF0000; "+
		"sub.rn.f32 a, $1, a; sub.rn.f32 b, $2, b; cvt.rn.bf16x2.f32 $0, b, a; }", x, high)
	return product(high, product(low, zero))
}

func (w *writer) dot(x, y, sum value) value {
	return w.set("f32", sum.dims, "tt.dot %s, inputPrecision = tf32 : %s * %s -> %s",
		names([]value{x, y, sum}), x.typ(), y.typ(), sum.typ())
}

// signs returns a matrix that rotates runs of block elements, times factor: in natural order, the
// sign is negative if i & j has an odd number of ones. Elements between different runs are 0.
func (w *writer) signs(size, block int, factor float64) value {
	return w.once(fmt.Sprint("signs ", size, block, factor), func() value {
		const parities = 0x96696996 // bit n is 1 where n, of five bits, has an odd number of ones
		dims := []int{size, size}
		count := w.countTo(size)
		i := w.broadcastTo(w.reshapeTo(count, []int{size, 1}), dims)
		j := w.broadcastTo(w.reshapeTo(count, []int{1, size}), dims)
		v := w.apply("arith.andi", i, j)
		if block < size {
			v = w.apply("arith.andi", v, w.number(v, float64(block-1)))
		}
		if block > 32 { // a sixth bit
			low := w.apply("arith.andi", v, w.number(v, 31))
			v = w.apply("arith.xori", low, w.apply("arith.shrui", v, w.number(v, 5)))
		}
		v = w.apply("arith.andi", w.apply("arith.shrui", w.number(v, parities), v), w.number(v, 1))
		sign := func(x float64) value { return w.broadcastTo(w.constant("bf16", x), dims) }
		even := w.compare("eq", v, w.number(v, 0))
		signs := w.selectValue(even, sign(factor), sign(-factor))
		if block < size {
			apart := w.apply("arith.xori", i, j)
			sameRun := w.compare("ult", apart, w.number(apart, float64(block)))
			signs = w.selectValue(sameRun, signs, sign(0))
		}
		return signs
	})
}
