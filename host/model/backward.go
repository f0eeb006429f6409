package model

import (
	"github.com/gomlx/gomlx/core/graph"

	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/compute/lower"
)

// Backward quantizes the operands of the two products in the backward pass of a linear layer y =
// x·Wᵀ, given dy, the adjoint of y [tokens, out]. Both products sum over the last axis of both
// operands, as they are given here. The gradients of quantizers in the forward pass apply to dx and
// dW as always.
type Backward struct {
	InputGradient  Operands // of dx = dy·W: dy [tokens, out] and Wᵀ [in, out]
	WeightGradient Operands // of dW = dyᵀ·x: dyᵀ [out, tokens] and xᵀ [in, tokens]
	// Unquantized quantizes what [NoteUnquantized] noted of W and x, where it did, instead of W and
	// x.
	Unquantized bool
}

// Operands quantizes those of a product. A nil function leaves its operand as it is.
type Operands struct {
	Gradient func(dy *graph.Node) *graph.Node
	Other    func(operand *graph.Node) *graph.Node // W or x, as the forward product has multiplied it or before its quantization
}

// none reports whether both operands stay as they are.
func (o Operands) none() bool { return o.Gradient == nil && o.Other == nil }

// product returns a·bᵀ of the quantized operands.
func (o Operands) product(gradient, other *graph.Node) *graph.Node {
	if o.Gradient != nil {
		gradient = o.Gradient(gradient)
	}
	if o.Other != nil {
		other = o.Other(other)
	}
	return matMulTransposed(gradient, other)
}

// AttachTo has linear layers whose weight is the node w compute their gradients so.
func (b Backward) AttachTo(w *graph.Node) {
	if !b.InputGradient.none() || !b.WeightGradient.none() {
		engine.Note(w, b)
	}
}

// linearGradients returns the adjoints of x [tokens, in] and w [out, in], given that of x·wᵀ
// [tokens, out].
func linearGradients(dy, x, w *graph.Node) (dx, dw *graph.Node) {
	return addLinearGradients(nil, dy, x, w)
}

// addLinearGradients is linearGradients with sum added to dx, unless it is nil.
func addLinearGradients(sum, dy, x, w *graph.Node) (dx, dw *graph.Node) {
	b, _ := engine.NoteOf[Backward](w)
	switch {
	case b.InputGradient.none() && sum != nil:
		dx, sum = engine.AddDotGeneral(sum, dy, []int{1}, nil, w, []int{0}, nil), nil
	case b.InputGradient.none() && lower.HasRoundedAdjoint(x):
		dx = engine.DotGeneralRounded(dy, []int{1}, nil, w, []int{0}, nil)
	case b.InputGradient.none():
		dx = matMul(dy, w)
	default:
		dx = b.InputGradient.product(dy, transpose(b.other(b.InputGradient, w)))
	}
	if sum != nil {
		dx = graph.Add(sum, dx)
	}
	if b.WeightGradient.none() {
		return dx, transposedMatMul(dy, x)
	}
	return dx, b.WeightGradient.product(transpose(dy), transpose(b.other(b.WeightGradient, x)))
}

// other is the operand beside the gradient.
func (b Backward) other(o Operands, operand *graph.Node) *graph.Node {
	if u, ok := engine.NoteOf[unquantized](operand); ok && b.Unquantized && o.Other != nil {
		return u.x
	}
	return operand
}

// unquantized is a note of a quantized tensor: what was quantized.
type unquantized struct{ x *graph.Node }

// NoteUnquantized notes that a tensor is Q(x).
func NoteUnquantized(quantized, x *graph.Node) {
	if quantized != x {
		engine.Note(quantized, unquantized{x})
	}
}

// quantizesBackward reports whether a layer with the weight w quantizes operands of its backward
// pass.
func quantizesBackward(w *graph.Node) bool {
	_, ok := engine.NoteOf[Backward](w)
	return ok
}
