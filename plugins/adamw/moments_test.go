package main

import (
	"math"
	"testing"

	"github.com/cage-qat/cage/host/testing/plugintest"
	"github.com/cage-qat/cage/internal/testing/golden"
	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/reference"
	"github.com/cage-qat/cage/sdk/sdktest"
)

var int8Moments = map[string]any{"moments": moments8}

func TestConformance8(t *testing.T) {
	sdktest.Optimizer(t, adamw{}, plugintest.Fixed(t, adamw{}, int8Moments)...)
}

// TestFlash compares codes with those of the authors' code, and updates with those of NumPy
// (testdata/flash.py).
func TestFlash(t *testing.T) {
	plugintest.EachCase(t, "flash", func(t *testing.T, bench plugintest.Bench, c golden.Case) {
		if c.Inputs.Has("x0") {
			bench.Follow(t, adamw{}, c, 1e-5)
			return
		}
		m, v := c.Inputs.Array("m"), c.Inputs.Array("v")
		names := []string{stateM, stateMScale, stateV, stateVScale, "m_back", "v_back"}
		got := bench.Eval(t, func(_ *program.Builder, in []program.Value) []program.Value {
			s := encode(in[0], in[1])
			mBack, vBack := decode(s, m.Shape)
			return []program.Value{s[stateM], s[stateMScale], s[stateV], s[stateVScale], mBack, vBack}
		}, reference.Floats(m.Data, m.Shape...), reference.Floats(v.Data, v.Shape...))
		for i, name := range names {
			bench.Close(c.Expected, name, got[i], 1e-6)
		}
	})
}

// TestFewMoments8 checks that tensors with other row lengths, and vectors, keep moments of 32 bits.
func TestFewMoments8(t *testing.T) {
	for _, c := range []struct {
		tensor sdk.Tensor
		want   int
	}{{plugintest.Matrix(3, 64), 4}, {plugintest.Matrix(3, 40), 2}, {plugintest.Vector(64), 2}} {
		if o := plugintest.BuildOptimizer(t, adamw{}, int8Moments, c.tensor); len(o.State) != c.want {
			t.Errorf("%v has %d states, want %d", c.tensor.Shape, len(o.State), c.want)
		}
	}
}

// TestSmallElement checks an element with gradients so much smaller than those of its neighbours
// that the code of its second moment would round to 0, but not that of its first. When these
// gradients end, it must move no further than with moments of 32 bits.
func TestSmallElement(t *testing.T) {
	plugintest.Each(t, func(t *testing.T, bench plugintest.Bench) {
		run := bench.Train(t, adamw{}, int8Moments, plugintest.Matrix(1, 32), make([]float64, 32))
		g := make([]float64, 32)
		for step := range 30 {
			for i := range g {
				g[i] = 1 - 2*float64((step+i)%2) // changing signs keep the first moments small
			}
			g[0] = 1.8e-3
			if step >= 10 {
				g[0] = 1e-9
			}
			before := run.X()[0]
			run.Update(t, g, 1)
			if moved := math.Abs(run.X()[0] - before); !(moved <= 1.1) {
				t.Errorf("update %d moved it by %g", step, moved)
			}
		}
	})
}

// TestScaleShrinks checks that without gradients moments shrink at the right rate, however slow.
func TestScaleShrinks(t *testing.T) {
	plugintest.Each(t, func(t *testing.T, bench plugintest.Bench) {
		run := bench.Train(t, adamw{},
			map[string]any{"moments": moments8, "beta1": 0.999, "beta2": 0.9999}, plugintest.Matrix(1, 32),
			make([]float64, 32))
		run.Update(t, plugintest.Normal(1, 1, 1, 32).Data, 0)
		m, v := run.State(stateMScale)[0], run.State(stateVScale)[0]
		for range 50 {
			run.Update(t, make([]float64, 32), 0)
		}
		plugintest.Near(t, "scales",
			[]float64{run.State(stateMScale)[0] / m, run.State(stateVScale)[0] / v},
			[]float64{math.Pow(0.999, 50), math.Pow(0.9999, 25)}, 1e-4)
	})
}
