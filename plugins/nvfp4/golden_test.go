package main

import (
	"testing"

	"github.com/cage-qat/cage/internal/fpmodel"
	"github.com/cage-qat/cage/internal/golden"
	"github.com/cage-qat/cage/sdk/microscaling"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/reference"
	"github.com/cage-qat/cage/tools/plugintest"
)

// single bounds, relative to the largest value of the tensor, what binary32 may do
// to it: two scales, and two rotations of 16, are a few units of 6e-8.
const single = 1e-6

// TestScales: the scale of a block is the product of the two of the format, and codes and
// scales are those of ẑ, the rotated tensor. The rest of the file is the kit's.
func TestScales(t *testing.T) {
	plugintest.EachCase(t, "nvfp4", func(t *testing.T, m plugintest.Bench, c golden.Case) {
		given := map[string]any{"ties": c.Params.String("ties")}
		if c.Params.Int("hblock") > 0 {
			given["rotation"] = c.Params.String("hblock")
		}
		x := c.Inputs.Array("x")
		q := m.Quantize(t, nvfp4{}, given, x)
		m.Close(c.Expected, "zhat", fpmodel.Decode(q.Codes, q.Scale, x.Shape[len(x.Shape)-1], block), single)
		tensor, block := twoScales(t, m, c.Expected.Array("zhat").Shape, microscaling.Rotation(max(1, c.Params.Int("hblock"))), x)
		m.Close(c.Expected, "tensor_scale", tensor, single)
		c.Expected.Exact("block_scales", block)
		for i, s := range q.Scale {
			plugintest.Near(t, "scale", []float64{s}, []float64{block[i] * tensor[0]}, 1e-7)
		}
		for i, on := range q.Mask {
			if on != 1 {
				t.Errorf("mask %v at %d: all entries pass", on, i)
			}
		}
	})
}

// twoScales are g and the block scales sB of x, which the plugin multiplies.
func twoScales(t *testing.T, m plugintest.Bench, shape []int, rotation microscaling.Rotation, x golden.Array) (tensor, blocks []float64) {
	t.Helper()
	out := m.Eval(t, func(_ *program.Builder, in []program.Value) []program.Value {
		s := newScales(microscaling.NewBlocks(shape, block).Split(rotation.Apply(in[0])), formDecode)
		return []program.Value{s.tensor, s.block}
	}, reference.Floats(x.Data, shape...))
	return out[0], out[1]
}

func TestE4M3(t *testing.T) {
	golden.Load(t, "testdata/nvfp4.json").RunList(t, "e4m3_rounding", func(t *testing.T, o golden.Object) {
		plugintest.Each(t, func(t *testing.T, m plugintest.Bench) {
			y := m.Eval(t, func(_ *program.Builder, in []program.Value) []program.Value {
				return []program.Value{microscaling.RoundE4M3(in[0])}
			}, reference.Float(o.Float("x")))[0]
			plugintest.Near(t, "y", y, []float64{o.Float("y")}, 0)
		})
	})
}

// TestHandCheck repeats a tensor that can be worked out on paper: g is a little more
// than 12/2688, the scale of the block a little more than 2, and −7 lies just below
// the tie of 3½. In binary32 it lies on it.
func TestHandCheck(t *testing.T) {
	x := golden.Array{Shape: []int{1, 4}, Data: []float64{12, -7, 1.3, 0.1}}
	q := plugintest.Oracle().Quantize(t, nvfp4{}, nil, x)
	plugintest.Near(t, "value", q.Value, []float64{12, -6, 1, 0}, 1e-7)
	plugintest.Near(t, "codes", q.Codes, []float64{7, 13, 1, 0}, 0)
	q = plugintest.CPU(t).Quantize(t, nvfp4{}, nil, x)
	plugintest.Near(t, "value in binary32", q.Value, []float64{12, -8, 1, 0}, 1e-7)
}
