package graphexec

import (
	"math"

	"github.com/cage-qat/cage/host/compute/graph"
	"github.com/cage-qat/cage/host/compute/shapes"
	"github.com/cage-qat/cage/internal/halffloat"
)

type (
	signed   interface{ int8 | int32 }
	unsigned interface{ uint8 | uint32 }
	integer  interface{ signed | unsigned }
	float    interface{ float32 | float64 }
	number   interface{ integer | float }
)

// convert returns the kernel of a conversion.
func convert(op *graph.Operation) kernel {
	from, to := op.Args[0].DType(), op.Results[0].DType()
	run := converter(from, to, from.IsFloat())
	return inParts(op, func(in, out [][]byte) { run(out[0], in[0]) })
}

// converter returns a function that converts elements, through float64, which holds the numbers of
// all types. Integers are saturated, or lose their upper bits.
func converter(from, to shapes.DType, saturate bool) func(out, x []byte) {
	load, store, n, m := formats[from].load, formats[to].store, from.Size(), to.Size()
	limit, limited := limits[to]
	saturate = saturate && limited
	switch {
	case from == to:
		return func(out, x []byte) { copy(out, x) }
	case from == shapes.Float32 && to == shapes.BFloat16: // frequent
		return func(out, x []byte) {
			to := as[shapes.BFloat](out)
			for i, v := range as[float32](x)[:len(to)] {
				to[i] = shapes.ToBFloat(v)
			}
		}
	case from == shapes.BFloat16 && to == shapes.Float32:
		return func(out, x []byte) {
			to := as[float32](out)
			for i, v := range as[shapes.BFloat](x)[:len(to)] {
				to[i] = v.Float32()
			}
		}
	case to == shapes.Float64:
		return func(out, x []byte) { load(as[float64](out), x) }
	case from == shapes.Float64 && !saturate:
		return func(out, x []byte) { store(out, as[float64](x)) }
	}
	const block = 512 // numbers that stay in the L1 cache
	return func(out, x []byte) {
		b, release := temporary(8 * block)
		defer release()
		for len(x) > 0 {
			part := as[float64](b)[:min(block, len(x)/n)]
			load(part, x)
			if saturate {
				for i, v := range part {
					if v != v {
						v = 0
					}
					part[i] = min(max(v, limit[0]), limit[1])
				}
			}
			store(out, part)
			x, out = x[len(part)*n:], out[len(part)*m:]
		}
	}
}

// limits are the least and largest integers of types.
var limits = map[shapes.DType][2]float64{
	shapes.Int8: {math.MinInt8, math.MaxInt8}, shapes.Uint8: {0, math.MaxUint8},
	shapes.Int32: {math.MinInt32, math.MaxInt32}, shapes.Uint32: {0, math.MaxUint32},
}

// formats read as many elements as there are numbers in out, and write numbers.
var formats = [...]struct {
	load  func(out []float64, b []byte)
	store func(b []byte, x []float64)
}{
	shapes.Bool:   {load[uint8], storeEach(func(v float64) bool { return v != 0 })},
	shapes.Int8:   {load[int8], storeInteger[int8]},
	shapes.Uint8:  {load[uint8], storeInteger[uint8]},
	shapes.Int32:  {load[int32], storeInteger[int32]},
	shapes.Uint32: {load[uint32], storeInteger[uint32]},
	shapes.Float16: {
		loadEach(func(v shapes.Half) float32 { return halffloat.FromHalf(uint16(v)) }),
		storeEach(func(v float64) shapes.Half { return shapes.Half(halffloat.ToHalf(float32(v))) }),
	},
	shapes.BFloat16: {
		loadEach(shapes.BFloat.Float32),
		storeEach(func(v float64) shapes.BFloat { return shapes.ToBFloat(float32(v)) }),
	},
	shapes.Float32: {load[float32], storeFloat[float32]},
	shapes.Float64: {load[float64], storeFloat[float64]},
}

func load[T number](out []float64, b []byte) {
	for i, v := range as[T](b)[:len(out)] {
		out[i] = float64(v)
	}
}

func loadEach[T shapes.Element](f func(v T) float32) func(out []float64, b []byte) {
	return func(out []float64, b []byte) {
		for i, v := range as[T](b)[:len(out)] {
			out[i] = float64(f(v))
		}
	}
}

func storeFloat[T float](b []byte, x []float64) {
	out := as[T](b)[:len(x)]
	for i, v := range x {
		out[i] = T(v)
	}
}

func storeInteger[T integer](b []byte, x []float64) {
	out := as[T](b)[:len(x)]
	for i, v := range x {
		out[i] = T(int64(v))
	}
}

func storeEach[T shapes.Element](f func(v float64) T) func(b []byte, x []float64) {
	return func(b []byte, x []float64) {
		out := as[T](b)[:len(x)]
		for i, v := range x {
			out[i] = f(v)
		}
	}
}
