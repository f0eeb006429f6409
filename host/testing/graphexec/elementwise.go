package graphexec

import (
	"cmp"
	"math"
	"math/bits"
	"unsafe"

	"github.com/cage-qat/cage/host/compute/graph"
	"github.com/cage-qat/cage/host/compute/shapes"
	"github.com/cage-qat/cage/internal/lists"
)

// elementwise returns the kernel of an operation on elements at the same positions. Floats of types
// without a loop for the operation are computed in float64: its results, rounded to float32, are
// those of arithmetic in float32.
func elementwise(op *graph.Operation) kernel {
	if len(op.Args) == 0 {
		refuse(op, "there is no such operation")
	}
	dtype := op.Args[0].DType()
	k := loopOf(op, dtype)
	if k == nil && dtype.IsFloat() {
		if k = loopOf(op, shapes.Float64); k != nil {
			k = inType(op, shapes.Float64, k)
		}
	}
	if k == nil {
		refuse(op, "there is no such operation for this type")
	}
	return inParts(op, k)
}

// inParts returns a kernel that computes an elementwise operation part by part, on all processors.
func inParts(op *graph.Operation, k kernel) kernel {
	const part, grain = 1 << 12, 1 << 15
	sizes := lists.Map(op.Args, func(n *graph.Node) int { return n.DType().Size() })
	size := op.Results[0].DType().Size()
	return func(in, out [][]byte) {
		n := len(out[0]) / size
		if n <= part {
			clearUpperHalves()
			k(in, out)
			return
		}
		split(n, grain, func(i, to int) {
			args, results := make([][]byte, len(in)), make([][]byte, 1)
			for ; i < to; i += part {
				j := min(i+part, to)
				for a, s := range sizes {
					args[a] = in[a][i*s : j*s]
				}
				results[0] = out[0][i*size : j*size]
				clearUpperHalves()
				k(args, results)
			}
		})
	}
}

func single[A, B shapes.Element](loop func(out []B, x []A)) kernel {
	if loop == nil {
		return nil
	}
	return func(in, out [][]byte) { loop(as[B](out[0]), as[A](in[0])) }
}

func pair[A, B shapes.Element](loop func(out []B, x, y []A)) kernel {
	if loop == nil {
		return nil
	}
	return func(in, out [][]byte) { loop(as[B](out[0]), as[A](in[0]), as[A](in[1])) }
}

// loopOf returns the kernel of an operation on elements of a type, or nil.
func loopOf(op *graph.Operation, dtype shapes.DType) kernel {
	of := map[shapes.DType]func(op *graph.Operation) kernel{
		shapes.Bool: bools, shapes.Float32: floats[float32], shapes.Float64: floats[float64],
		shapes.Int8: integers[int8, uint8, int8], shapes.Uint8: integers[uint8, uint8, int8],
		shapes.Int32: integers[int32, uint32, int32], shapes.Uint32: integers[uint32, uint32, int32],
	}[dtype]
	var k kernel
	if of != nil {
		k = of(op)
	}
	if k == nil && dtype == shapes.Float64 {
		return functions(op)
	}
	return k
}

// arithmetic returns a loop for numbers.
func arithmetic[T number](op *graph.Operation) func(out, x, y []T) {
	switch op.Name {
	case "add":
		return func(out, x, y []T) {
			x, y = x[:len(out)], y[:len(out)]
			for i := range out {
				out[i] = x[i] + y[i]
			}
		}
	case "subtract":
		return func(out, x, y []T) {
			x, y = x[:len(out)], y[:len(out)]
			for i := range out {
				out[i] = x[i] - y[i]
			}
		}
	case "multiply":
		return func(out, x, y []T) {
			x, y = x[:len(out)], y[:len(out)]
			for i := range out {
				out[i] = x[i] * y[i]
			}
		}
	case "maximum":
		return func(out, x, y []T) {
			x, y = x[:len(out)], y[:len(out)]
			for i := range out {
				out[i] = max(x[i], y[i])
			}
		}
	case "minimum":
		return func(out, x, y []T) {
			x, y = x[:len(out)], y[:len(out)]
			for i := range out {
				out[i] = min(x[i], y[i])
			}
		}
	}
	return nil
}

// comparison returns a loop that compares elements.
func comparison[T cmp.Ordered](op *graph.Operation) func(out []bool, x, y []T) {
	less := func(out []bool, x, y []T) {
		for i, v := range x {
			out[i] = v < y[i]
		}
	}
	lessOrEqual := func(out []bool, x, y []T) {
		for i, v := range x {
			out[i] = v <= y[i]
		}
	}
	direction := attribute[string](op, "comparison_direction")
	switch direction {
	case "#stablehlo<comparison_direction EQ>":
		return func(out []bool, x, y []T) {
			for i, v := range x {
				out[i] = v == y[i]
			}
		}
	case "#stablehlo<comparison_direction NE>":
		return func(out []bool, x, y []T) {
			for i, v := range x {
				out[i] = v != y[i]
			}
		}
	case "#stablehlo<comparison_direction LT>":
		return less
	case "#stablehlo<comparison_direction LE>":
		return lessOrEqual
	case "#stablehlo<comparison_direction GT>":
		return func(out []bool, x, y []T) { less(out, y, x) }
	case "#stablehlo<comparison_direction GE>":
		return func(out []bool, x, y []T) { lessOrEqual(out, y, x) }
	}
	refuse(op, "there is no comparison "+direction)
	return nil
}

// floats returns the kernel of an operation that has a loop for floats, or nil.
func floats[T float](op *graph.Operation) kernel {
	switch op.Name {
	case "compare":
		return pair(comparison[T](op))
	case "divide":
		return pair(func(out, x, y []T) {
			x, y = x[:len(out)], y[:len(out)]
			for i := range out {
				out[i] = x[i] / y[i]
			}
		})
	case "negate":
		return single(func(out, x []T) {
			for i, v := range x {
				out[i] = -v
			}
		})
	case "abs":
		return each(func(v T) T { return T(math.Abs(float64(v))) })
	case "sqrt":
		return single(func(out, x []T) {
			for i, v := range x {
				out[i] = T(math.Sqrt(float64(v)))
			}
		})
	case "is_finite":
		return each(func(v T) bool { return v-v == 0 })
	}
	return pair(arithmetic[T](op))
}

// functions returns the kernel of a function of float64, or nil.
func functions(op *graph.Operation) kernel {
	f := map[string]func(float64) float64{
		"exponential_minus_one": math.Expm1, "log": math.Log, "log_plus_one": math.Log1p,
		"tanh": math.Tanh, "sine": math.Sin, "cosine": math.Cos, "floor": math.Floor,
		"round_nearest_even": math.RoundToEven,
		"sign": func(v float64) float64 {
			if v == 0 || v != v {
				return v
			}
			return math.Copysign(1, v)
		},
	}[op.Name]
	switch {
	case op.Name == "exponential":
		return single(func(out, x []float64) {
			for i, v := range x {
				out[i] = math.Exp(v)
			}
		})
	case op.Name == "power":
		return both(math.Pow)
	case f != nil:
		return each(f)
	}
	return nil
}

// each returns the kernel of a function of one element.
func each[A, B shapes.Element](f func(v A) B) kernel {
	return single(func(out []B, x []A) {
		for i, v := range x {
			out[i] = f(v)
		}
	})
}

// both returns the kernel of a function of two elements.
func both[A, B shapes.Element](f func(v, w A) B) kernel {
	return pair(func(out []B, x, y []A) {
		for i, v := range x {
			out[i] = f(v, y[i])
		}
	})
}

// bitwise returns a loop for bits.
func bitwise[T integer](op *graph.Operation) func(out, x, y []T) {
	switch op.Name {
	case "and":
		return func(out, x, y []T) {
			for i, v := range x {
				out[i] = v & y[i]
			}
		}
	case "or":
		return func(out, x, y []T) {
			for i, v := range x {
				out[i] = v | y[i]
			}
		}
	case "xor":
		return func(out, x, y []T) {
			for i, v := range x {
				out[i] = v ^ y[i]
			}
		}
	}
	return nil
}

// bools returns the kernel of an operation on bools, which are bytes of 0 or 1, or nil.
func bools(op *graph.Operation) kernel {
	switch op.Name {
	case "compare":
		return pair(comparison[uint8](op))
	case "not":
		return each(func(v bool) bool { return !v })
	case "maximum", "minimum", "multiply":
		return pair(arithmetic[uint8](op))
	case "add":
		return both(func(v, w uint8) uint8 { return v | w })
	}
	return pair(bitwise[uint8](op))
}

// integers returns the kernel of an operation on integers, or nil. Type U has the bits of T without
// a sign, and S those with one. Unlike in Go, x/0 is −1.
func integers[T integer, U unsigned, S signed](op *graph.Operation) kernel {
	switch op.Name {
	case "compare":
		return pair(comparison[T](op))
	case "negate":
		return each(func(v T) T { return -v })
	case "abs":
		return each(func(v T) T { return max(v, 0) - min(v, 0) })
	case "sign":
		return each(func(v T) T { return T(cmp.Compare(v, 0)) })
	case "not":
		return each(func(v T) T { return ^v })
	case "count_leading_zeros":
		return each(func(v T) T {
			return T(8*int(unsafe.Sizeof(v)) - bits.Len32(uint32(U(v))))
		})
	case "divide":
		return both(func(v, w T) T {
			if w == 0 {
				return ^w
			}
			return v / w
		})
	case "power":
		return both(power[T])
	case "shift_left":
		return pair(func(out, x, n []T) {
			for i, v := range x {
				out[i] = v << U(n[i])
			}
		})
	case "shift_right_logical":
		return pair(func(out, x, n []T) {
			for i, v := range x {
				out[i] = T(U(v) >> U(n[i]))
			}
		})
	case "shift_right_arithmetic":
		return both(func(v, n T) T { return T(S(v) >> U(n)) })
	}
	if k := pair(bitwise[T](op)); k != nil {
		return k
	}
	return pair(arithmetic[T](op))
}

// power returns vⁿ. Powers with a negative n are fractions, which become 0, except those of ±1.
func power[T integer](v, n T) T {
	if n < 0 {
		if v != 1 && v+1 != 0 {
			return 0
		}
		n &= 1
	}
	result := T(1)
	for ; n > 0; n >>= 1 {
		if n&1 == 1 {
			result *= v
		}
		v *= v
	}
	return result
}

// choose returns the kernel of a selection.
func choose(op *graph.Operation) kernel {
	if op.Args[0].IsScalar() {
		return func(in, out [][]byte) {
			if as[bool](in[0])[0] {
				copy(out[0], in[1])
			} else {
				copy(out[0], in[2])
			}
		}
	}
	k := map[int]kernel{1: chooseWords[uint8], 2: chooseWords[uint16], 4: chooseWords[uint32],
		8: chooseWords[uint64]}[op.Results[0].DType().Size()]
	return inParts(op, k)
}

func chooseWords[W word](in, out [][]byte) {
	to, x, y := as[W](out[0]), as[W](in[1]), as[W](in[2])
	x, y = x[:len(to)], y[:len(to)]
	for i, condition := range as[bool](in[0])[:len(to)] {
		v := y[i]
		if condition {
			v = x[i]
		}
		to[i] = v
	}
}
