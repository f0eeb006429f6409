package model

import (
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"

	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/compute/loops"
)

// The CPU computes these functions natively. Programs over rows would be slow: they have no lookup,
// so losses would compare each column with the target, and the adjoint of a gain would be a
// reduction over all rows.

// rowAdjoints computes [normAdjoints] in one pass over the rows, and adds sum, unless nil, to dx.
func rowAdjoints(x, gainRow, scale, dy, sum *graph.Node) (dx, dGain *graph.Node) {
	width := x.Shape().Dim(1)
	inputs := []*graph.Node{x, gainRow, scale, dy}
	if sum != nil {
		inputs = append(inputs, sum)
	}
	outputs := engine.Native{Name: "adjoints of a norm", Outputs: []shapes.Shape{x.Shape(),
		shapes.Make(dtypes.Float32, width)},
		Run: func(in, out []engine.Tensor, parallel engine.Parallel) error {
			f, to := elementsOf(in), elementsOf(out)
			n := loops.Norm{Width: width, X: f[0], Gain: f[1], Scale: f[2], Adjoint: f[3]}
			if len(f) > 4 {
				n.Sum = f[4]
			}
			n.Adjoints(to[0], to[1], parallel)
			return nil
		}}.Call(inputs...)
	return outputs[0], outputs[1]
}

// nativeGate computes [swiGLU] in one pass. The operands, the result and the adjoints are stored in
// bfloat16. The gradient is with respect to the factors of the operands, so that adding the two
// adjoints of x needs no separate pass.
func nativeGate(a, b *graph.Node, of *gateOperands) *graph.Node {
	short := shapes.Make(dtypes.BFloat16, a.Shape().Dimensions...)
	operands := []*graph.Node{engine.ShortOperand(a), engine.ShortOperand(b)}
	gate := func(in []engine.Tensor) loops.Gates {
		return loops.Gates{A: in[0].Flat.([]uint16), B: in[1].Flat.([]uint16)}
	}
	y := engine.Native{Name: "gate", Outputs: []shapes.Shape{short},
		Run: func(in, out []engine.Tensor, parallel engine.Parallel) error {
			gate(in).Values(out[0].Flat.([]uint16), parallel)
			return nil
		}}.Call(operands...)
	return engine.Custom(toFloat32(y[0]), []*graph.Node{of.x, of.w1, of.w2},
		func(dy *graph.Node) []*graph.Node {
			d := toBFloat16(engine.ShortOperand(dy))
			adjoints := engine.Native{Name: "adjoints of a gate", Outputs: []shapes.Shape{short, short},
				Run: func(in, out []engine.Tensor, parallel engine.Parallel) error {
					gate(in).Adjoints(out[0].Flat.([]uint16), out[1].Flat.([]uint16), in[2].Flat.([]uint16),
						parallel)
					return nil
				}}.Call(append(operands, d)...)
			dx, dw1 := linearGradients(toFloat32(adjoints[0]), of.x, of.w1)
			dx, dw2 := addLinearGradients(dx, toFloat32(adjoints[1]), of.x, of.w2)
			return []*graph.Node{dx, dw1, dw2}
		})
}

// nativeLosses returns log Σ exp(logits) − logits[target] of each row, [tokens, 1], and the
// gradient with respect to the logits of the losses times their factors, in the precision of the
// device. targets and factors are [tokens, 1].
func nativeLosses(logits, targets, factors *graph.Node) (losses, dLogits *graph.Node) {
	each := shapes.Make(dtypes.Float32, targets.Shape().Dimensions...)
	gradient := shapes.Make(engine.OperandType(logits.Graph()), logits.Shape().Dimensions...)
	results := engine.Native{Name: "losses", Outputs: []shapes.Shape{each, gradient},
		Run: func(in, out []engine.Tensor, parallel engine.Parallel) error {
			whole, _ := out[1].Flat.([]float32)
			short, _ := out[1].Flat.([]uint16)
			return rowsOf(in).Losses(out[0].Flat.([]float32), whole, short, in[2].Flat.([]float32), parallel)
		}}.Call(logits, targets, factors)
	return results[0], graph.ConvertDType(results[1], dtypes.Float32)
}

// nativeDistilled returns the divergences and cross-entropies of the rows of logits, [tokens, 1]
// each, and the gradient with respect to the logits of the losses times factors, [tokens, 1], in
// the precision of the device.
func nativeDistilled(d Distillation, logits, teacher, targets,
	factors *graph.Node) (divergences, crossEntropies, dLogits *graph.Node) {
	each := shapes.Make(dtypes.Float32, targets.Shape().Dimensions...)
	gradient := shapes.Make(engine.OperandType(logits.Graph()), logits.Shape().Dimensions...)
	results := engine.Native{Name: "distillation", Outputs: []shapes.Shape{each, each, gradient},
		Run: func(in, out []engine.Tensor, parallel engine.Parallel) error {
			whole, _ := out[2].Flat.([]float32)
			short, _ := out[2].Flat.([]uint16)
			of := loops.Distillation{Teacher: in[3].Flat.([]float32), Beta: d.Beta,
				Temperature: d.Temperature, Weight: d.Weight, Scale: d.Scale()}
			return rowsOf(in).Distilled(of, out[0].Flat.([]float32), out[1].Flat.([]float32), whole, short,
				in[2].Flat.([]float32), parallel)
		}}.Call(logits, targets, factors, teacher)
	return results[0], results[1], graph.ConvertDType(results[2], dtypes.Float32)
}

// nativeSums returns log Σ exp(logits) and logits[target] of each row, [tokens, 1] each.
func nativeSums(logits, targets *graph.Node) (logTotal, chosen *graph.Node) {
	each := shapes.Make(dtypes.Float32, targets.Shape().Dimensions...)
	sums := engine.Native{Name: "sums of losses", Outputs: []shapes.Shape{each, each},
		Run: func(in, out []engine.Tensor, parallel engine.Parallel) error {
			to := elementsOf(out)
			return rowsOf(in).Sums(to[0], to[1], parallel)
		}}.Call(logits, targets)
	return sums[0], sums[1]
}

func rowsOf(in []engine.Tensor) loops.Logits {
	return loops.Logits{Columns: in[0].Shape.Dim(1), Logits: in[0].Flat.([]float32),
		Targets: in[1].Flat.([]int32)}
}
