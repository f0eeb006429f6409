package triton

import (
	"fmt"
	"math"
	"math/bits"

	"github.com/cage-qat/cage/sdk/program"
)

// largestMatrix is the largest rotation that is one product: its matrix must fit beside
// the tile into the memory that the threads of an instance share.
const largestMatrix = 128

// hadamard rotates runs of elements by products with matrices of ±1. A large matrix of
// natural order is the Kronecker product of two smaller ones, H(ab) = H(a) ⊗ H(b): the
// runs are rotated as matrices of a × b elements, first their rows and then their columns.
func (w *writer) hadamard(n *program.Node, args []value) value {
	l, _ := w.layout(n.Type)
	x, block := w.broadcastTo(args[0], w.dims(l)), n.Attr.Block
	size := w.tile * l.padded()
	rows := block
	if block > largestMatrix {
		rows = 1 << ((bits.Len(uint(block))) / 2)
	}
	columns := block / rows
	if rows < smallestDotRow || columns > 1 && columns < smallestDotRow || size/rows < leastDotRows || columns > 1 && size/columns < leastDotRows {
		panic(w.current(fmt.Sprintf("a tile of %d elements is too small for products that rotate %d", size, block)))
	}
	y := w.product(w.reshaped(x, []int{size / rows, rows}))
	if columns > 1 {
		y = w.transposed(w.reshaped(y, []int{size / block, columns, rows}))
		y = w.product(w.reshaped(y, []int{size / columns, columns}))
		y = w.transposed(w.reshaped(y, []int{size / block, rows, columns}))
	}
	y = w.apply("arith.mulf", y, w.number(y, 1/math.Sqrt(float64(block))))
	return w.reshaped(y, x.dims)
}

func (w *writer) transposed(x value) value {
	dims := []int{x.dims[0], x.dims[2], x.dims[1]}
	return w.set(x.elem, dims, "tt.trans %s {order = array<i32: 0, 2, 1>} : %s -> %s", x.name, x.typ(), typeText(x.elem, dims))
}

// product multiplies a matrix from the right by the signs. Products are of bfloat16
// numbers, with sums in float32: an element that has more digits is the sum of two, and
// loses at most 2⁻¹⁷ of itself.
func (w *writer) product(x value) value {
	signs, zero := w.signs(x.dims[1]), w.number(x, 0)
	high := w.cast("arith.truncf", x, "bf16")
	if x.inBFloat16 {
		return w.dot(high, signs, zero)
	}
	low := w.apply("arith.subf", x, w.cast("arith.extf", high, "f32"))
	return w.dot(high, signs, w.dot(w.cast("arith.truncf", low, "bf16"), signs, zero))
}

func (w *writer) dot(x, y, sum value) value {
	return w.set("f32", sum.dims, "tt.dot %s, %s, %s, inputPrecision = tf32 : %s * %s -> %s", x.name, y.name, sum.name, x.typ(), y.typ(), sum.typ())
}

// signs is the matrix of natural order: −1 where i and j have an odd number of ones in
// common. The parity of a number is that of its halves combined.
func (w *writer) signs(size int) value {
	if v, ok := w.matrices[size]; ok {
		return v
	}
	dims := []int{size, size}
	count := w.count(size)
	i, j := w.broadcastTo(w.reshaped(count, []int{size, 1}), dims), w.broadcastTo(w.reshaped(count, []int{1, size}), dims)
	v := w.apply("arith.andi", i, j)
	for shift := 8; shift > 0; shift /= 2 {
		v = w.apply("arith.xori", v, w.apply("arith.shrui", v, w.number(v, float64(shift))))
	}
	v = w.apply("arith.andi", v, w.number(v, 1))
	v = w.apply("arith.subi", w.number(v, 1), w.apply("arith.addi", v, v))
	v = w.cast("arith.truncf", w.cast("arith.sitofp", v, "f32"), "bf16")
	w.matrices[size] = v
	return v
}
