package main

import (
	"slices"
	"testing"

	"github.com/cage-qat/cage/host/testing/plugintest"
	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/sdktest"
)

func TestConformance(t *testing.T) {
	sdktest.Optimizer(t, sdk.Opaque(adamw{}),
		plugintest.Kit(t, "../../../../plugins/adamw/testdata/adamw")...)
}

// TestForms checks that computing eight elements at a time gives the same bits as one at a time.
func TestForms(t *testing.T) {
	f := factors{beta1: 0.9, beta2: 0.95, rest1: 0.1, rest2: 0.05, root: 0.7, eps: 1e-8}
	const n = 37
	list := func(seed uint64) (out []float32) {
		for _, v := range plugintest.Normal(seed, n).Data {
			out = append(out, float32(v*v))
		}
		return out
	}
	g, m, v := list(1), list(2), list(3)
	var by [2][3][]float32
	for i, step := range []func(g, m, v, nextM, nextV, u []float32){f.step, f.scalar} {
		by[i] = [3][]float32{make([]float32, n), make([]float32, n), make([]float32, n)}
		step(g, m, v, by[i][0], by[i][1], by[i][2])
	}
	for i, what := range []string{"m", "v", "u"} {
		if !slices.Equal(by[0][i], by[1][i]) {
			t.Errorf("%s is %v and %v", what, by[0][i], by[1][i])
		}
	}
}
