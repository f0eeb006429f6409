package model

import (
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"

	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/compute/lower"
	"github.com/cage-qat/cage/host/compute/norm"
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
			n := norm.Rows{Width: width, X: in[0].Flat.([]float32), Gain: in[1].Flat.([]float32), Scale: in[2].Flat.([]float32), Adjoint: in[3].Flat.([]float32)}
			n.Adjoints(out[0].Flat.([]float32), out[1].Flat.([]float32), parallel)
			return nil
		}}
	outputs := native.Call(x, gainRow, scale, dy)
	return outputs[0], outputs[1]
}
