// Package plugintest runs a plugin's programs in its tests: on the float64 oracle
// and, compiled, on the CPU device in float32. What every plugin promises, and its
// golden file, is the business of the conformance kit (package sdktest), for which
// [Kit] has the options. Here is what tests of the algorithm itself need: building
// its programs, their gradients, the steps of an optimizer.
//
// The package is for tests only and knows no algorithm.
package plugintest

import (
	"fmt"
	"math"
	"testing"

	"github.com/cage-qat/cage/internal/golden"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/reference"
)

// Machine executes programs.
type Machine struct {
	// Name is that of the subtests: "oracle" or "cpu".
	Name string
	// Double tells binary64, the oracle's precision, from binary32.
	Double bool
	// Run executes a valid program on inputs by name and ends the test when that
	// fails. Float inputs are rounded to the machine's precision.
	Run func(t testing.TB, p *program.Program, inputs map[string]reference.Tensor) map[string]reference.Tensor
}

// Oracle executes programs in float64.
func Oracle() Machine {
	return Machine{Name: "oracle", Double: true, Run: func(t testing.TB, p *program.Program, inputs map[string]reference.Tensor) map[string]reference.Tensor {
		t.Helper()
		outputs, err := reference.Run(p, inputs)
		if err != nil {
			t.Fatal(err)
		}
		return outputs
	}}
}

// Eval runs what body writes on inputs with the values x and returns its results.
func (m Machine) Eval(t testing.TB, body func(b *program.Builder, in []program.Value) []program.Value, x ...reference.Tensor) [][]float64 {
	t.Helper()
	b := program.NewBuilder("test")
	inputs := map[string]reference.Tensor{}
	var args []program.Value
	for i, v := range x {
		name := fmt.Sprint("x", i)
		inputs[name] = v
		args = append(args, b.Input(name, v.Type))
	}
	results := body(b, args)
	for i, v := range results {
		b.Output(fmt.Sprint("y", i), v)
	}
	p, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	out := m.Run(t, p, inputs)
	all := make([][]float64, len(results))
	for i := range results {
		all[i] = out[fmt.Sprint("y", i)].Float64s()
	}
	return all
}

// Each runs a test on every machine, each in a subtest.
func Each(t *testing.T, test func(t *testing.T, m Machine)) {
	t.Helper()
	for _, m := range []Machine{Oracle(), CPU()} {
		t.Run(m.Name, func(t *testing.T) { test(t, m) })
	}
}

// Close compares got with the golden numbers at key: on the oracle within the
// file's own tolerance, on a device within single times the largest finite
// magnitude among them. In binary32 a sum of terms of that magnitude cannot be
// better than this, however small the result.
func (m Machine) Close(o golden.Object, key string, got []float64, single float64) {
	if m.Double {
		o.Close(key, got)
		return
	}
	o.CloseWithin(golden.Tolerance{Abs: single * largest(o.Tensor(key).Data)}, key, got)
}

// largest is the largest finite magnitude, 0 when there is none.
func largest(data []float64) float64 {
	most := 0.0
	for _, v := range data {
		if a := math.Abs(v); a > most && !math.IsInf(a, 0) {
			most = a
		}
	}
	return most
}
