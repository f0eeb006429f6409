// Package teststage computes programs on devices in tests, as stages of a step.
package teststage

import (
	"fmt"
	"testing"

	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/compute/stage"
	"github.com/cage-qat/cage/host/testing/testdevice"
	"github.com/cage-qat/cage/sdk/program"
)

// Compute compiles what write writes, from values of the inputs, as a stage, and runs it once. It
// returns the outputs as floats.
func Compute(t testing.TB, d *engine.Device, calls stage.Calls, inputs []*engine.Buffer,
	write func(b *program.Builder, in []program.Value) []program.Value) [][]float32 {
	t.Helper()
	tensors, name := stage.Tensors{}, func(prefix string, i int) string {
		return fmt.Sprintf("%s%04d", prefix, i)
	}
	s := stage.Stage{Name: t.Name(), Calls: calls}
	for i, b := range inputs {
		tensors[name("in", i)] = b
		s.Inputs = append(s.Inputs, engine.Spec{Name: name("in", i), Shape: b.Shape()})
	}
	count := 0
	s.Write = func(b *program.Builder, in stage.Values) stage.Values {
		var values []program.Value
		for i := range inputs {
			values = append(values, in[name("in", i)])
		}
		out := stage.Values{}
		list := write(b, values)
		for i, v := range list {
			if count = len(list); v.Type().DType != program.Float {
				v = v.Convert(program.Float)
			}
			out[name("out", i)] = v
		}
		return out
	}
	e, err := s.Compile(d, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	results := stage.Tensors{}
	defer results.Finalize()
	if err := e.Run(results, tensors); err != nil {
		t.Fatal(err)
	}
	var list [][]float32
	for i := range count {
		list = append(list, testdevice.Download[float32](t, results[name("out", i)]))
	}
	return list
}
