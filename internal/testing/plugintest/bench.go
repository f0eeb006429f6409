// Package plugintest runs a plugin's programs in its tests: on the reference implementation
// (float64) and, compiled, on the CPU device in float32. It has the helpers for tests of an
// algorithm: building its programs, running them and their gradients, and the steps of an
// optimizer. The requirements on every plugin, and the values of its golden file, are checked by
// the conformance kit (package sdktest); [Kit] returns its options.
//
// The package is for tests only and knows no algorithm.
package plugintest

import (
	"fmt"
	"runtime/debug"
	"sync"
	"testing"

	"github.com/cage-qat/cage/host/compute/device"
	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/train/conformance"
	"github.com/cage-qat/cage/internal/testing/golden"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/reference"
	"github.com/cage-qat/cage/sdk/sdktest"
)

// init reduces garbage collection in tests: the reference implementation allocates much and retains
// little, so that the collector would take a third of the time.
func init() { debug.SetGCPercent(800) }

// Bench executes programs for tests: any failure ends the test.
type Bench struct{ machine sdktest.Machine }

// Reference returns a Bench that executes programs in float64.
func Reference() Bench { return Bench{sdktest.Reference{}} }

// cpuDevice is opened by the first test that needs it and shared by all tests of the
// process.
var cpuDevice = sync.OnceValues(func() (*conformance.Device, error) {
	opened, err := engine.Open(device.CPU, engine.Options{})
	if err != nil {
		return nil, err
	}
	return conformance.NewDevice(opened), nil
})

// CPU returns a Bench that compiles programs for the CPU device, in float32, and executes
// them.
func CPU(t testing.TB) Bench {
	t.Helper()
	device, err := cpuDevice()
	if err != nil {
		t.Fatal(err)
	}
	return Bench{device}
}

// Double reports whether m computes in float64, as the reference implementation does.
func (m Bench) Double() bool { return m == Reference() }

// Run executes a valid program on inputs by name. Float inputs are rounded to the
// machine's precision.
func (m Bench) Run(t testing.TB, p *program.Program,
	inputs map[string]reference.Tensor) map[string]reference.Tensor {
	t.Helper()
	outputs, err := m.machine.Run(p, inputs)
	if err != nil {
		t.Fatal(err)
	}
	return outputs
}

// Eval runs the program that body builds on inputs with the values x, and returns its results.
func (m Bench) Eval(t testing.TB,
	body func(b *program.Builder, in []program.Value) []program.Value,
	x ...reference.Tensor) [][]float64 {
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

// Each runs a test on the reference implementation and on the CPU, each in a subtest.
func Each(t *testing.T, test func(t *testing.T, m Bench)) {
	t.Helper()
	for _, m := range []Bench{Reference(), CPU(t)} {
		t.Run(m.machine.Name(), func(t *testing.T) { test(t, m) })
	}
}

// Close compares got with the golden numbers at key: on the reference implementation within the
// file's own tolerance, on a device within single times the largest finite magnitude among them. In
// float32, a sum of terms of that magnitude cannot be more accurate, however small the result.
func (m Bench) Close(o golden.Object, key string, got []float64, single float64) {
	if m.Double() {
		o.Close(key, got)
		return
	}
	o.CloseWithin(golden.Tolerance{Abs: single * golden.Largest(o.Array(key).Data)}, key, got)
}
