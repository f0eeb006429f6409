package graphexec

import (
	"slices"

	"github.com/cage-qat/cage/host/compute/graph"
	"github.com/cage-qat/cage/host/compute/shapes"
	"github.com/cage-qat/cage/internal/lists"
)

// word is an element that is only moved.
type word interface {
	uint8 | uint16 | uint32 | uint64
}

// An axis has n elements, with their distances in two tensors.
type axis struct{ n, to, from int }

// strides returns the distances of elements along the axes of a tensor in row-major order.
func strides(dims []int) []int {
	out, size := make([]int, len(dims)), 1
	for i, d := range slices.Backward(dims) {
		out[i] = size
		size *= d
	}
	return out
}

// axesOf returns axes with the given dimensions and distances.
func axesOf(dims, to, from []int) []axis {
	return lists.Make(len(dims), func(i int) axis { return axis{dims[i], to[i], from[i]} })
}

// merge joins axes that can be one, and drops those of one element.
func merge(axes []axis) []axis {
	var out []axis
	for _, a := range axes {
		if a.n == 1 {
			continue
		}
		if last := len(out) - 1; last >= 0 && out[last].to == a.n*a.to && out[last].from == a.n*a.from {
			a.n *= out[last].n
			out[last] = a
		} else {
			out = append(out, a)
		}
	}
	return out
}

// mover returns a function that copies elements of a number of bytes along axes, beginning with
// element to of out and element from of x.
func mover(size int, axes []axis) func(out, x []byte, to, from int) {
	n := 1
	for _, a := range axes {
		n *= a.n
	}
	if n == 0 {
		return func([]byte, []byte, int, int) {}
	}
	if axes = merge(axes); len(axes) == 0 {
		axes = []axis{{1, 1, 1}}
	}
	of := map[int]func([]axis, int) func(out, x []byte, to, from int){1: moverOf[uint8],
		2: moverOf[uint16], 4: moverOf[uint32], 8: moverOf[uint64]}[size]
	return of(axes, n)
}

func moverOf[W word](axes []axis, n int) func(out, x []byte, to, from int) {
	const grain = 1 << 16
	return func(out, x []byte, to, from int) {
		a := axes[0]
		split(a.n, grain/(n/a.n), func(i, j int) {
			part := slices.Clone(axes)
			part[0].n = j - i
			move(as[W](out), as[W](x), to+i*a.to, from+i*a.from, part)
		})
	}
}

func move[W word](out, x []W, to, from int, axes []axis) {
	a := axes[0]
	switch {
	case len(axes) == 2 && a.from == 1 && axes[1].from > 1:
		const block = 8 // rows that the L1 cache keeps even if their distance is a power of two
		for b := axes[1]; a.n > 0; a.n -= block {
			for i := range b.n {
				p, q := to+i*b.to, from+i*b.from
				for _, v := range x[q : q+min(a.n, block)] {
					out[p] = v
					p += a.to
				}
			}
			to, from = to+block*a.to, from+block
		}
	case len(axes) > 1:
		for range a.n {
			move(out, x, to, from, axes[1:])
			to, from = to+a.to, from+a.from
		}
	case a.to == 1 && a.from == 1:
		copy(out[to:to+a.n], x[from:from+a.n])
	case a.to == 1 && a.from == 0:
		part, v := out[to:to+a.n], x[from]
		for i := range part {
			part[i] = v
		}
	default:
		for range a.n {
			out[to] = x[from]
			to, from = to+a.to, from+a.from
		}
	}
}

// rearrange returns the kernel of an operation that copies each element of its result from a
// constant position of its operand.
func rearrange(op *graph.Operation) kernel {
	x, dims := op.Args[0].Shape().Dimensions, op.Results[0].Shape().Dimensions
	step, start := strides(x), 0
	from := make([]int, len(dims))
	switch op.Name {
	case "transpose":
		for i, axis := range attribute[[]int](op, "permutation") {
			from[i] = step[axis]
		}
	case "broadcast_in_dim":
		for i, axis := range attribute[[]int](op, "broadcast_dimensions") {
			if x[i] > 1 {
				from[axis] = step[i]
			}
		}
	case "slice":
		first, by := attribute[[]int](op, "start_indices"), attribute[[]int](op, "strides")
		for i, s := range step {
			start += first[i] * s
			from[i] = by[i] * s
		}
	case "reverse":
		copy(from, step)
		for _, axis := range attribute[[]int](op, "dimensions") {
			start += (x[axis] - 1) * step[axis]
			from[axis] = -step[axis]
		}
	}
	run := mover(op.Results[0].DType().Size(), axesOf(dims, strides(dims), from))
	return func(in, out [][]byte) { run(out[0], in[0], 0, start) }
}

// insertion returns a function that copies a tensor into another.
func insertion(x, into shapes.Shape) func(out, x []byte, to, from int) {
	return mover(x.DType.Size(), axesOf(x.Dimensions, strides(into.Dimensions), strides(x.Dimensions)))
}

func concatenate(op *graph.Operation) kernel {
	out, axis := op.Results[0].Shape(), attribute[int](op, "dimension")
	runs := lists.Map(op.Args, func(n *graph.Node) func(out, x []byte, to, from int) {
		return insertion(n.Shape(), out)
	})
	step := strides(out.Dimensions)[axis]
	return func(in, out [][]byte) {
		at := 0
		for i, run := range runs {
			run(out[0], in[i], at, 0)
			at += op.Args[i].Shape().Dimensions[axis] * step
		}
	}
}

func pad(op *graph.Operation) kernel {
	x, out := op.Args[0].Shape(), op.Results[0].Shape()
	low, interior := attribute[[]int](op, "edge_padding_low"),
		attribute[[]int](op, "interior_padding")
	to, from := strides(out.Dimensions), strides(x.Dimensions)
	dims, start, first := slices.Clone(x.Dimensions), 0, 0
	for i, at := range low {
		if interior[i] != 0 {
			refuse(op, "padding between elements")
		}
		begin := max(0, -at) // the first element that is not cut off
		dims[i] = max(0, min(dims[i], out.Dimensions[i]-at)-begin)
		start += (at + begin) * to[i]
		first += begin * from[i]
	}
	fill := mover(x.DType.Size(), []axis{{out.Size(), 1, 0}})
	run := mover(x.DType.Size(), axesOf(dims, to, from))
	return func(in, out [][]byte) {
		fill(out[0], in[1], 0, 0)
		run(out[0], in[0], start, first)
	}
}

// dynamic returns the kernel of a slice or an update at indices that are clamped.
func dynamic(op *graph.Operation) kernel {
	x, part, args := op.Args[0].Shape(), op.Results[0].Shape(), 1
	if op.Name == "dynamic_update_slice" {
		part, args = op.Args[1].Shape(), 2
	}
	if len(op.Args)-args != x.Rank() {
		refuse(op, "it needs an index for each axis")
	}
	for _, n := range op.Args[args:] {
		if n.DType() != shapes.Int32 || !n.IsScalar() {
			refuse(op, "indices are scalars of int32")
		}
	}
	step := strides(x.Dimensions)
	offset := func(in [][]byte) int {
		at := 0
		for i, b := range in[args:] {
			index := max(0, min(int(as[int32](b)[0]), x.Dimensions[i]-part.Dimensions[i]))
			at += index * step[i]
		}
		return at
	}
	if args == 2 {
		run := insertion(part, x)
		return func(in, out [][]byte) {
			copy(out[0], in[0])
			run(out[0], in[1], offset(in), 0)
		}
	}
	run := mover(x.DType.Size(), axesOf(part.Dimensions, strides(part.Dimensions), step))
	return func(in, out [][]byte) { run(out[0], in[0], 0, offset(in)) }
}

// gather returns the kernel of [graph.Gather].
func gather(op *graph.Operation) kernel {
	x, index := op.Args[0].Shape(), op.Args[1].Shape()
	lead := index.Rank() - 1
	n := index.Dim(-1)
	numbers := func(field string) []int {
		return attribute[[]int](op, "dimension_numbers", field)
	}
	sizes := slices.Concat(slices.Repeat([]int{1}, n), x.Dimensions[n:])
	if index.DType != shapes.Int32 || !slices.Equal(numbers("collapsed_slice_dims"), lists.Range(n)) ||
		!slices.Equal(numbers("start_index_map"), lists.Range(n)) ||
		!slices.Equal(numbers("offset_dims"), lists.Range(lead + x.Rank() - n)[lead:]) ||
		attribute[int](op, "dimension_numbers", "index_vector_dim") != lead ||
		!slices.Equal(attribute[[]int](op, "slice_sizes"), sizes) {
		refuse(op, "indices must be of the first axes, as in graph.Gather")
	}
	step := strides(x.Dimensions)
	row := shapes.Make(x.DType, x.Dimensions[n:]...)
	size, width := x.DType.Size(), int(row.ByteSize())
	return func(in, out [][]byte) {
		list := as[int32](in[1])
		for to := out[0]; len(to) > 0; to = to[width:] {
			at := 0
			for i, v := range list[:n] {
				at += max(0, min(int(v), x.Dimensions[i]-1)) * step[i] * size
			}
			copy(to[:width], in[0][at:])
			list = list[n:]
		}
	}
}
