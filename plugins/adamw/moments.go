package main

import (
	"slices"

	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/program"
)

// Moments of 8 bits, as in FlashOptim (Gonzalez Ortiz et al. 2026, arXiv 2602.23349): the elements of a row are
// divided into groups of 32. A group has a scale, its largest magnitude, and each element a code:
//
//	m = s·y/(2−|y|),  y = code/127 in −1…1     code = round(127·2z/(1+|z|)),  z = m/s
//	v = (s·code/255)²                          code = round(255·√v/s),        s the largest √v
//
// So codes lie closer together near zero, where most moments are. An update computes with the moments before they are
// rounded. Two things differ from the authors' code (databricks/flashoptim):
//
//   - Scales are float32, not float16. Without gradients a scale shrinks in a step by a factor of √β2, which is 1 − 2⁻¹¹
//     for β2 = 0.999: one that is rounded to fewer digits than that would stay where it is. And gradients may be smaller than float16 holds.
//   - A second moment that is not 0 has a code of at least 1. Otherwise an element whose gradients are 500 times
//     smaller than the largest of its group can keep a first moment without a second one, and moves far too much.

// group is the number of elements that share a scale.
const group = 32

// The states that hold scales of moments of 8 bits.
const (
	stateMScale = "m_scale"
	stateVScale = "v_scale"
)

const (
	largestM, largestV = 127, 255 // codes
	smallestScale      = 1e-30    // of a group of zeros
)

// narrow reports whether the moments of t have 8 bits.
func narrow(t sdk.Tensor) bool {
	last := len(t.Shape) - 1
	return t.Text("moments") == moments8 && last > 0 && t.Shape[last]%group == 0
}

// Storage implements [sdk.Compact].
func (adamw) Storage(t sdk.Tensor) map[string]sdk.Storage {
	if !narrow(t) {
		return nil
	}
	return map[string]sdk.Storage{stateM: sdk.StoreInt8, stateV: sdk.StoreUint8}
}

// perGroup is a shape with the last axis divided into groups of n: one number for each with n = 1, all elements with
// n = group.
func perGroup(shape []int, n int) []int {
	last := len(shape) - 1
	return append(slices.Clone(shape[:last]), shape[last]/group, n)
}

// scales is the shape of the scales of a tensor with this shape.
func scales(shape []int) []int {
	list := perGroup(shape, 1)
	return list[:len(list)-1]
}

// decode returns the moments that codes and scales stand for.
func decode(s sdk.State, shape []int) (m, v program.Value) {
	b := s[stateM].Builder()
	grouped := func(name string, n int) program.Value { return s[name].Reshape(perGroup(shape, n)...) }
	y := grouped(stateM, group).Scale(1. / largestM)
	m = y.Div(b.Const(2).Sub(y.Abs())).Mul(grouped(stateMScale, 1))
	root := grouped(stateV, group).Scale(1. / largestV).Mul(grouped(stateVScale, 1))
	return m.Reshape(shape...), root.Square().Reshape(shape...)
}

// encode returns the codes and scales of moments.
func encode(m, v program.Value) sdk.State {
	b, shape := m.Builder(), m.Shape()
	grouped := perGroup(shape, group)
	m, root := m.Reshape(grouped...), v.Sqrt().Reshape(grouped...)
	smallest := b.Const(smallestScale)
	mScale, vScale := m.Abs().MaxRow().Max(smallest), root.MaxRow().Max(smallest)
	z := m.Div(mScale)
	mCode := z.Scale(2 * largestM).Div(z.Abs().Shift(1)).Round()
	vCode := root.Div(vScale).Scale(largestV).Round().Max(root.Sign())
	return sdk.State{
		stateM: mCode.Reshape(shape...), stateMScale: mScale.Reshape(scales(shape)...),
		stateV: vCode.Reshape(shape...), stateVScale: vScale.Reshape(scales(shape)...),
	}
}
