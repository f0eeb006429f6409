// Package teststage computes programs on devices in tests, as stages of a step.
package teststage

import (
	"fmt"
	"testing"

	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/compute/update"
	"github.com/cage-qat/cage/host/testing/testdevice"
	"github.com/cage-qat/cage/sdk/program"
)

// Compute compiles what write writes, from values of the inputs, as a stage, and runs it once. It
// returns the outputs as floats.
func Compute(t testing.TB, d *engine.Device, calls update.Calls, inputs []*engine.Buffer,
	write func(b *program.Builder, in []program.Value) []program.Value) [][]float32 {
	t.Helper()
	tensors, name := update.Tensors{}, func(prefix string, i int) string {
		return fmt.Sprintf("%s%04d", prefix, i)
	}
	stage := update.Stage{Name: t.Name(), Calls: calls}
	for i, b := range inputs {
		tensors[name("in", i)] = b
		stage.Inputs = append(stage.Inputs, engine.Spec{Name: name("in", i), Shape: b.Shape()})
	}
	count := 0
	stage.Write = func(b *program.Builder, in update.Values) update.Values {
		var values []program.Value
		for i := range inputs {
			values = append(values, in[name("in", i)])
		}
		out := update.Values{}
		list := write(b, values)
		for i, v := range list {
			if count = len(list); v.Type().DType != program.Float {
				v = v.Convert(program.Float)
			}
			out[name("out", i)] = v
		}
		return out
	}
	e, err := stage.Compile(d, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	results := update.Tensors{}
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
