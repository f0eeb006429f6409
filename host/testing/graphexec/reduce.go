package graphexec

import (
	"slices"

	"github.com/cage-qat/cage/host/compute/graph"
	"github.com/cage-qat/cage/host/compute/shapes"
)

// A fold combines elements with accumulators of a wider type, in an order that depends only on the
// shapes.
type fold[T number, A int64 | float64] struct {
	row    func(a A, x []T) A // combines one accumulator with all elements
	column func(a []A, x []T) // combines each accumulator with one element
}

// reduction returns the kernel of a reduction, or of [graph.ScatterAdd].
func reduction(op *graph.Operation) kernel {
	dtype := op.Args[0].DType()
	of := map[shapes.DType]func(op *graph.Operation) kernel{
		shapes.Int8: foldKernel[int8, int64], shapes.Uint8: foldKernel[uint8, int64],
		shapes.Int32: foldKernel[int32, int64], shapes.Uint32: foldKernel[uint32, int64],
		shapes.Float32: foldKernel[float32, float64], shapes.Float64: foldKernel[float64, float64],
		shapes.BFloat16: foldKernel[float32, float64], shapes.Float16: foldKernel[float32, float64],
	}[dtype]
	switch {
	case of == nil:
		refuse(op, "there is no reduction of this type")
	case dtype == shapes.BFloat16 || dtype == shapes.Float16:
		return inType(op, shapes.Float32, of(op))
	}
	return of(op)
}

func foldKernel[T number, A int64 | float64](op *graph.Operation) kernel {
	f := foldOf[T, A](op)
	if op.Name == "scatter" {
		return f.scatter(op)
	}
	return f.reduce(op)
}

func foldOf[T number, A int64 | float64](op *graph.Operation) fold[T, A] {
	body := op.Bodies[0]
	if len(body.Operations) != 1 || !slices.Equal(body.Operations[0].Args, body.Parameters) ||
		!slices.Equal(body.Operations[0].Results, body.Results) {
		refuse(op, "its body is not a single operation on its parameters")
	}
	switch body.Operations[0].Name {
	case "add":
		return fold[T, A]{sumRow[T, A], func(a []A, x []T) {
			a = a[:len(x)]
			for i, v := range x {
				a[i] += A(v)
			}
		}}
	case "maximum":
		return extreme[T, A](1)
	case "minimum":
		return extreme[T, A](-1)
	}
	refuse(op, "its body is "+body.Operations[0].Name)
	return fold[T, A]{}
}

// extreme returns a fold to the maximum of sign·x. NaN remains.
func extreme[T number, A int64 | float64](sign A) fold[T, A] {
	return fold[T, A]{func(a A, x []T) A {
		for _, v := range x {
			if w := A(v); sign*w > sign*a || w != w {
				a = w
			}
		}
		return a
	}, func(a []A, x []T) {
		a = a[:len(x)]
		for i, v := range x {
			if w := A(v); sign*w > sign*a[i] || w != w {
				a[i] = w
			}
		}
	}}
}

// sumRow adds four sums, which do not wait for each other.
func sumRow[T number, A int64 | float64](a A, x []T) A {
	var s0, s1, s2, s3 A
	for len(x) >= 4 {
		s0, s1, s2, s3 = s0+A(x[0]), s1+A(x[1]), s2+A(x[2]), s3+A(x[3])
		x = x[4:]
	}
	for _, v := range x {
		s0 += A(v)
	}
	return a + ((s0 + s1) + (s2 + s3))
}

// walk combines elements along axes with their accumulators. Elements along the last axis are
// contiguous, and have one accumulator or contiguous ones.
func (f fold[T, A]) walk(a []A, x []T, to, from int, axes []axis) {
	switch first := axes[0]; {
	case len(axes) > 1:
		for range first.n {
			f.walk(a, x, to, from, axes[1:])
			to, from = to+first.to, from+first.from
		}
	case first.to == 0:
		a[to] = f.row(a[to], x[from:from+first.n])
	default:
		f.column(a[to:to+first.n], x[from:from+first.n])
	}
}

// reduce returns the kernel of a reduction. Only results are divided among processors, never the
// elements of one.
func (f fold[T, A]) reduce(op *graph.Operation) kernel {
	if len(op.Args) != 2 {
		refuse(op, "only one tensor is reduced at a time")
	}
	dims, n := op.Args[0].Shape().Dimensions, op.Results[0].Shape().Size()
	kept, reduced := slices.Clone(dims), attribute[[]int](op, "dimensions")
	for _, i := range reduced {
		kept[i] = 1
	}
	to := strides(kept)
	for _, i := range reduced {
		to[i] = 0
	}
	axes := merge(axesOf(dims, to, strides(dims)))
	if len(axes) == 0 {
		axes = []axis{{1, 1, 1}}
	}
	const grain = 1 << 15
	first, size := axes[0], op.Args[0].Shape().Size()
	return func(in, out [][]byte) {
		b, release := temporary(8 * n)
		defer release()
		a, x, initial := as[A](b), as[T](in[0]), A(as[T](in[1])[0])
		for i := range a {
			a[i] = initial
		}
		if size > 0 && first.to != 0 {
			split(first.n, grain*first.n/size, func(i, j int) {
				part := slices.Clone(axes)
				part[0].n = j - i
				f.walk(a, x, i*first.to, i*first.from, part)
			})
		} else if size > 0 {
			f.walk(a, x, 0, 0, axes)
		}
		narrow(as[T](out[0]), a)
	}
}

func narrow[T number, A int64 | float64](out []T, a []A) {
	for i, v := range a[:len(out)] {
		out[i] = T(v)
	}
}

// scatter returns the kernel of [graph.ScatterAdd].
func (f fold[T, A]) scatter(op *graph.Operation) kernel {
	into, index := op.Args[0].Shape(), op.Args[1].Shape()
	numbers := func(field string) []int {
		return attribute[[]int](op, "scatter_dimension_numbers", field)
	}
	window := numbers("update_window_dims")
	for i, axis := range window {
		if axis != i+1 {
			window = nil
		}
	}
	if index.DType != shapes.Int32 || index.Rank() != 2 || index.Dim(1) != 1 ||
		len(window) != into.Rank()-1 ||
		!slices.Equal(numbers("inserted_window_dims"), []int{0}) ||
		!slices.Equal(numbers("scatter_dims_to_operand_dims"), []int{0}) ||
		attribute[int](op, "scatter_dimension_numbers", "index_vector_dim") != 1 {
		refuse(op, "indices must be of rows, as in graph.ScatterAdd")
	}
	rows, width := into.Dimensions[0], shapes.Make(into.DType, into.Dimensions[1:]...).Size()
	return func(in, out [][]byte) {
		b, release := temporary(8 * rows * width)
		defer release()
		a, x := as[A](b), as[T](in[2])
		for i, v := range as[T](in[0]) {
			a[i] = A(v)
		}
		for i, row := range as[int32](in[1]) {
			if row := int(row); row >= 0 && row < rows {
				f.column(a[row*width:(row+1)*width], x[i*width:(i+1)*width])
			}
		}
		narrow(as[T](out[0]), a)
	}
}
