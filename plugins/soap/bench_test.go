package main

import (
	"testing"

	"github.com/cage-qat/cage/host/compute/refresh"
	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/program/reference"
	"github.com/cage-qat/cage/tools/plugintest"
)

// BenchmarkRefresh runs the refresh of one matrix, as it is in a model of width 256.
func BenchmarkRefresh(b *testing.B) {
	tensor := plugintest.Matrix(768, 256)
	tensor.Values = plugintest.Settings(b, soap{}.Describe(), nil)
	p, err := sdk.BuildOptimizer(soap{}, tensor)
	if err != nil {
		b.Fatal(err)
	}
	state := map[string]reference.Tensor{sdk.InputStep: reference.Float(12)}
	for i, s := range p.State {
		v := normal(uint64(i), s.Shape...)
		if n := s.Shape[0]; s.Name == "factor0" || s.Name == "factor1" { // any symmetric matrix
			for i := range n {
				for j := range i {
					v.Floats[j*n+i] = v.Floats[i*n+j]
				}
			}
		}
		state[sdk.StatePrefix+s.Name] = v
	}
	b.Run("double", func(b *testing.B) {
		for b.Loop() {
			if _, err := reference.Run(p.Refresh, state); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("fast", func(b *testing.B) {
		for b.Loop() {
			if _, err := refresh.Execute(p.Refresh, state); err != nil {
				b.Fatal(err)
			}
		}
	})
}
