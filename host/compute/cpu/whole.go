package cpu

import (
	"github.com/cage-qat/cage/host/compute/loops"
	"github.com/cage-qat/cage/sdk/program"
)

// Whole returns the function that computes an operation of whole tensors, which no pass over rows
// does, from slices as in [Call]; nil if there is none. args are the types of the operands.
func Whole(n *program.Node, args []program.Type) func(in, out []any, parallel loops.Parallel) {
	last := func(t program.Type) int { return t.Shape[len(t.Shape)-1] }
	row := func(t program.Type) int { return int(t.Size()) / t.Shape[0] } // of a table
	switch n.Op {
	case program.OpNearest:
		return func(in, out []any, parallel loops.Parallel) {
			loops.Nearest(out[0].([]int32), in[0].([]float32), in[1].([]float32), row(args[1]), parallel)
		}
	case program.OpLookup:
		return func(in, out []any, parallel loops.Parallel) {
			loops.Lookup(out[0].([]float32), in[0].([]int32), in[1].([]float32), row(args[1]), parallel)
		}
	case program.OpScatterAdd:
		return func(in, out []any, parallel loops.Parallel) {
			loops.ScatterAdd(out[0].([]float32), in[0].([]int32), in[1].([]float32), row(n.Type), parallel)
		}
	case program.OpTopK:
		return func(in, out []any, parallel loops.Parallel) {
			k := int(in[1].([]int32)[0])
			loops.TopK(out[0].([]bool), in[0].([]float32), last(args[0]), k, parallel)
		}
	case program.OpOrderStatistic:
		return func(in, out []any, parallel loops.Parallel) {
			k := int(in[1].([]int32)[0])
			loops.OrderStatistic(out[0].([]float32), in[0].([]float32), last(args[0]), k, parallel)
		}
	case program.OpRandomBits:
		return func(in, out []any, parallel loops.Parallel) {
			key, dst := [2]uint32(in[0].([]uint32)), out[0].([]uint32)
			inParts(len(dst), 1, parallel, func(from, to int) {
				loops.Bits(dst[from:to], key, uint32(from))
			})
		}
	case program.OpHadamard:
		return func(in, out []any, parallel loops.Parallel) {
			x, y, block := in[0].([]float32), out[0].([]float32), n.Attr.Block
			inParts(len(y), block, parallel, func(from, to int) {
				loops.Rotate(y[from:to], x[from:to], block)
			})
		}
	}
	return nil
}

// inParts calls f for parts of n elements, each a multiple of step.
func inParts(n, step int, parallel loops.Parallel, f func(from, to int)) {
	loops.InParts(n, max(step, 1<<14/step*step), parallel, f)
}
