package main

import (
	"slices"

	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/program"
)

// Moments of 8 bits, as in FlashOptim (Gonzalez Ortiz et al. 2026, arXiv 2602.23349): each group of
// 32 elements of a row has a scale, its largest magnitude, and each element a code:
//
//	m = s·y/(2−|y|),  y = code/127 in −1…1     code = round(127·2z/(1+|z|)),  z = m/s
//	v = (s·code/255)²                          code = round(255·√v/s),        s the largest √v
//
// Codes are thus denser near zero, where most moments are. An update uses the moments as they are
// before rounding. Two things differ from the authors' code (databricks/flashoptim):
//
//   - Scales are float32. Without gradients a scale shrinks by √β2 per step, 1 − 2⁻¹¹ for
//     β2 = 0.999, which float16 would round away; gradients may also underflow in float16.
//   - A second moment that is not 0 has a code of at least 1: otherwise an element with gradients
//     500 times below the group's largest could lose its second moment and make steps too large.

// group is the number of elements that share a scale.
const group = 32

// Names of the state tensors that hold the scales of 8-bit moments.
const (
	stateMScale = "m_scale"
	stateVScale = "v_scale"
)

const (
	largestM, largestV = 127, 255 // largest codes
	smallestScale      = 1e-30    // of a group of zeros
)

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

// perGroup returns shape with its last axis split into groups of n numbers each: n is 1 for
// per-group values and group for all elements.
func perGroup(shape []int, n int) []int {
	last := len(shape) - 1
	return append(slices.Clone(shape[:last]), shape[last]/group, n)
}

func scales(shape []int) []int {
	list := perGroup(shape, 1)
	return list[:len(list)-1]
}

func decode(s sdk.State, shape []int) (m, v program.Value) {
	b := s[stateM].Builder()
	grouped := func(name string, n int) program.Value { return s[name].Reshape(perGroup(shape, n)...) }
	y := grouped(stateM, group).Scale(1. / largestM)
	m = y.Div(b.Const(2).Sub(y.Abs())).Mul(grouped(stateMScale, 1))
	root := grouped(stateV, group).Scale(1. / largestV).Mul(grouped(stateVScale, 1))
	return m.Reshape(shape...), root.Square().Reshape(shape...)
}

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
