package model

import (
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"

	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/compute/loops"
	"github.com/cage-qat/cage/host/compute/lower"
)

// hasRowAdjoints reports whether the adjoints of a norm are computed in one pass: where programs over rows are, by the
// processor.
func hasRowAdjoints(x *graph.Node) bool {
	return engine.HasNatives(x.Graph()) && lower.HasKernels(x.Graph()) && x.Shape().Rank() == 2 && x.DType() == dtypes.Float32
}

// rowAdjoints is [normAdjoints] in one pass over the rows.
func rowAdjoints(x, gainRow, scale, dy *graph.Node) (dx, dGain *graph.Node) {
	width := x.Shape().Dim(1)
	native := engine.Native{Name: "adjoints of a norm", Outputs: []shapes.Shape{x.Shape(), shapes.Make(dtypes.Float32, width)},
		Run: func(in, out []engine.Tensor, parallel engine.Parallel) error {
			n := normRows{width: width, x: in[0].Flat.([]float32), gain: in[1].Flat.([]float32), scale: in[2].Flat.([]float32), dy: in[3].Flat.([]float32)}
			n.adjoints(out[0].Flat.([]float32), out[1].Flat.([]float32), parallel)
			return nil
		}}
	outputs := native.Call(x, gainRow, scale, dy)
	return outputs[0], outputs[1]
}

// normRows are the rows of a norm: x, the scale of each, the gains of their elements, and the adjoint of the value.
type normRows struct {
	width              int
	x, gain, scale, dy []float32
}

// normTask is the number of rows in a task. The gain's adjoint is added up within tasks and then over them, so that it does not
// depend on how many run at once.
const normTask = 64

// adjoints writes the adjoints of x and of the gain.
func (n normRows) adjoints(dx, dGain []float32, parallel engine.Parallel) {
	tasks := (len(n.scale) + normTask - 1) / normTask
	sums := make([]float32, tasks*n.width)
	parallel(tasks, func(task int) {
		normalized, product := make([]float32, n.width), make([]float32, n.width)
		sum := sums[task*n.width : (task+1)*n.width]
		for row := task * normTask; row < min(len(n.scale), (task+1)*normTask); row++ {
			at, end := row*n.width, (row+1)*n.width
			dy, to, scale := n.dy[at:end], dx[at:end], n.scale[row]
			loops.BinaryS(loops.Mul, normalized, n.x[at:end], scale)
			loops.Binary(loops.Mul, product, dy, normalized)
			loops.Binary(loops.Add, sum, sum, product)
			var projection [1]float32
			loops.GroupSumMul(projection[:], product, n.gain, n.width)
			loops.BinaryS(loops.Mul, normalized, normalized, projection[0]/float32(n.width))
			loops.Binary(loops.Mul, to, dy, n.gain)
			loops.Binary(loops.Sub, to, to, normalized)
			loops.BinaryS(loops.Mul, to, to, scale)
		}
	})
	clear(dGain)
	for task := range tasks {
		loops.Binary(loops.Add, dGain, dGain, sums[task*n.width:(task+1)*n.width])
	}
}
