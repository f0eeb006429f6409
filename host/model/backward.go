package model

import (
	"github.com/gomlx/gomlx/core/graph"

	"github.com/cage-qat/cage/host/compute/engine"
)

// Backward quantizes the operands of the two products in the backward pass of a linear layer y =
// x·Wᵀ, given dy, the adjoint of y [tokens, out]. Both products contract the last axis of both
// operands, in the layouts given here. The gradients of quantizers in the forward pass apply to dx
// and dW as usual.
type Backward struct {
	InputGradient  Operands // of dx = dy·W: dy [tokens, out] and Wᵀ [in, out]
	WeightGradient Operands // of dW = dyᵀ·x: dyᵀ [out, tokens] and xᵀ [in, tokens]
	// Unquantized replaces a quantized W or x by the tensor that [NoteUnquantized] recorded.
	Unquantized bool
}

// Operands quantizes the operands of a product. A nil function keeps its operand unquantized.
type Operands struct {
	Gradient func(dy *graph.Node) *graph.Node
	// W or x, as multiplied in the forward product or before its quantization
	Other func(operand *graph.Node) *graph.Node
}

func (o Operands) none() bool { return o.Gradient == nil && o.Other == nil }

func (o Operands) product(gradient, other *graph.Node) *graph.Node {
	if o.Gradient != nil {
		gradient = o.Gradient(gradient)
	}
	if o.Other != nil {
		other = o.Other(other)
	}
	return matMulTransposed(gradient, other)
}

// AttachTo makes linear layers with the weight w quantize their backward pass with b.
func (b Backward) AttachTo(w *graph.Node) {
	if !b.InputGradient.none() || !b.WeightGradient.none() {
		engine.Note(w, b)
	}
}

// linearGradients returns the adjoints of x [tokens, in] and w [out, in], given dy [tokens, out],
// the adjoint of x·wᵀ.
func linearGradients(dy, x, w *graph.Node) (dx, dw *graph.Node) {
	return addLinearGradients(nil, dy, x, w)
}

// addLinearGradients is like linearGradients, but adds sum, unless nil, to dx.
func addLinearGradients(sum, dy, x, w *graph.Node) (dx, dw *graph.Node) {
	b, _ := engine.NoteOf[Backward](w)
	if b.InputGradient.none() {
		dx = matMul(dy, w)
	} else {
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

func (b Backward) other(o Operands, operand *graph.Node) *graph.Node {
	if u, ok := engine.NoteOf[unquantized](operand); ok && b.Unquantized && o.Other != nil {
		return u.x
	}
	return operand
}

// unquantized is attached to the node of Q(x) and holds x.
type unquantized struct{ x *graph.Node }

// NoteUnquantized records that quantized is Q(x).
func NoteUnquantized(quantized, x *graph.Node) {
	if quantized != x {
		engine.Note(quantized, unquantized{x})
	}
}

// quantizesBackward reports whether a layer with the weight w quantizes operands in its backward
// pass.
func quantizesBackward(w *graph.Node) bool {
	_, ok := engine.NoteOf[Backward](w)
	return ok
}
