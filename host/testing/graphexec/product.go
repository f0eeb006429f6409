package graphexec

import (
	"slices"

	"github.com/cage-qat/cage/host/compute/graph"
	"github.com/cage-qat/cage/host/compute/shapes"
	"github.com/cage-qat/cage/internal/linalg"
)

// product returns the kernel of a product. Operands of 16 bits are multiplied in float32, and bytes
// in float64, where the sums are exact before they wrap.
func product(op *graph.Operation) kernel {
	from, to := op.Args[0].DType(), op.Results[0].DType()
	wide := to == shapes.Int32 || to == shapes.Uint32
	switch {
	case from == shapes.Float32 && to == from:
		return products(op, floatProduct[float32])
	case from == shapes.Float64 && to == from:
		return products(op, floatProduct[float64])
	case (from == shapes.Int32 || from == shapes.Uint32) && to == from:
		return products(op, integerProduct[int32])
	case (from == shapes.BFloat16 || from == shapes.Float16) && (to == from || to == shapes.Float32):
		return inType(op, shapes.Float32, products(op, floatProduct[float32]))
	case (from == shapes.Int8 || from == shapes.Uint8) && wide:
		return inType(op, shapes.Float64, products(op, floatProduct[float64]))
	}
	refuse(op, "there is no product of these types")
	return nil
}

// An operand of a product is a matrix for each batch. Its inner axis is summed over.
type operand struct {
	batch, rows, inner axis   // with distances from
	packing            []axis // unless nil, elements are copied to row-major order first
}

// operandOf returns an operand with the given axes.
func operandOf(n *graph.Node, batch, inner []int) operand {
	dims := n.Shape().Dimensions
	var rows []int
	for i := range dims {
		if !slices.Contains(batch, i) && !slices.Contains(inner, i) {
			rows = append(rows, i)
		}
	}
	step, ok := strides(dims), true
	var all []axis
	group := func(list []int) axis {
		axes, size := []axis(nil), 1
		for _, i := range list {
			axes = append(axes, axis{dims[i], 0, step[i]})
			size *= dims[i]
		}
		all = append(all, axes...)
		switch axes = merge(axes); {
		case len(axes) > 1:
			ok = false
		case len(axes) == 1:
			return axes[0]
		}
		return axis{size, 0, 1}
	}
	o := operand{batch: group(batch), rows: group(rows), inner: group(inner)}
	if !ok {
		o.inner.from, o.rows.from, o.batch.from = 1, o.inner.n, o.inner.n*o.rows.n
		o.packing = all
		size := 1
		for i, a := range slices.Backward(all) {
			all[i].to = size
			size *= a.n
		}
	}
	return o
}

// pack returns the elements of an operand in the order of its distances, and a function that the
// caller must call after using them.
func (o operand) pack(x []byte, size int) (b []byte, release func()) {
	if o.packing == nil {
		return x, func() {}
	}
	b, release = temporary(len(x))
	mover(size, o.packing)(b, x, 0, 0)
	return b, release
}

// products returns the kernel of a product. Multiply computes rows i to j−1 of a batch. The values
// of a row must not depend on i and j.
func products[T shapes.Element](op *graph.Operation,
	multiply func(out, x, y []T, a, b operand, i, j int)) kernel {
	axes := func(field string) []int {
		return attribute[[]int](op, "dot_dimension_numbers", field)
	}
	a := operandOf(op.Args[0], axes("lhs_batching_dimensions"), axes("lhs_contracting_dimensions"))
	b := operandOf(op.Args[1], axes("rhs_batching_dimensions"), axes("rhs_contracting_dimensions"))
	const grain = 1 << 18 // multiplications
	rows, cols, size := a.rows.n, b.rows.n, shapes.Of[T]().Size()
	return func(in, out [][]byte) {
		clear(out[0])
		if len(out[0]) == 0 || a.inner.n == 0 {
			return
		}
		packed, release := a.pack(in[0], size)
		defer release()
		x := as[T](packed)
		packed, release = b.pack(in[1], size)
		defer release()
		y := as[T](packed)
		split(a.batch.n*rows, grain/(cols*a.inner.n), func(from, to int) {
			for from < to {
				batch, i := from/rows, from%rows
				j := min(rows, i+to-from)
				multiply(as[T](out[0])[batch*rows*cols:], x[batch*a.batch.from:], y[batch*b.batch.from:],
					a, b, i, j)
				from += j - i
			}
		})
	}
}

func floatProduct[T float](out, x, y []T, a, b operand, i, j int) {
	c := linalg.RowMajor(out[i*b.rows.n:], j-i, b.rows.n)
	linalg.MulAdd(c, 1,
		linalg.MatrixOf[T]{Rows: j - i, Cols: a.inner.n, RowStride: a.rows.from,
			ColStride: a.inner.from, Data: x[i*a.rows.from:]},
		linalg.MatrixOf[T]{Rows: b.inner.n, Cols: b.rows.n, RowStride: b.inner.from,
			ColStride: b.rows.from, Data: y})
}

func integerProduct[T integer](out, x, y []T, a, b operand, i, j int) {
	for ; i < j; i++ {
		for col := range b.rows.n {
			sum, at, bt := T(0), i*a.rows.from, col*b.rows.from
			for range a.inner.n {
				sum += x[at] * y[bt]
				at, bt = at+a.inner.from, bt+b.inner.from
			}
			out[i*b.rows.n+col] = sum
		}
	}
}
