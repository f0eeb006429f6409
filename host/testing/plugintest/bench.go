// Package plugintest runs a plugin's programs in tests: in float64 on the reference implementation
// and, compiled, in float32 on the CPU device. It has helpers for tests of an algorithm, which
// build its programs, run them and their gradients, and perform optimizer steps. The conformance
// kit (package sdktest) checks the requirements on every plugin, and the values of golden files;
// [Kit] returns its options.
//
// It is for tests only, and does not depend on any algorithm.
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

// init makes garbage collection rarer: the reference implementation allocates much and retains
// little, so that the collector would otherwise take a third of the time.
func init() { debug.SetGCPercent(800) }

// Bench executes programs for tests. Any failure ends the test.
type Bench struct{ machine sdktest.Machine }

// Reference returns a Bench that executes programs in float64.
func Reference() Bench { return Bench{sdktest.Reference{}} }

// cpuDevice is opened by the first test that needs it, and shared by all tests of the process.
var cpuDevice = sync.OnceValues(func() (*conformance.Device, error) {
	opened, err := engine.Open(device.CPU, engine.Options{})
	if err != nil {
		return nil, err
	}
	return conformance.NewDevice(opened), nil
})

// CPU returns a Bench that compiles programs for the CPU device and executes them in float32.
func CPU(t testing.TB) Bench {
	t.Helper()
	device, err := cpuDevice()
	if err != nil {
		t.Fatal(err)
	}
	return Bench{device}
}

// Double reports whether m computes in float64, as only the reference implementation does.
func (m Bench) Double() bool { return m == Reference() }

// Run executes a valid program on named inputs. Float inputs are rounded to the precision of m.
func (m Bench) Run(t testing.TB, p *program.Program,
	inputs map[string]reference.Tensor) map[string]reference.Tensor {
	t.Helper()
	outputs, err := m.machine.Run(p, inputs)
	if err != nil {
		t.Fatal(err)
	}
	return outputs
}

// Eval runs the program that body builds on inputs with values x, and returns the results.
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

// Each runs a test on the reference implementation and on the CPU, in separate subtests.
func Each(t *testing.T, test func(t *testing.T, m Bench)) {
	t.Helper()
	for _, m := range []Bench{Reference(), CPU(t)} {
		t.Run(m.machine.Name(), func(t *testing.T) { test(t, m) })
	}
}

// Close compares got with the golden numbers at key: within the file's tolerance on the reference
// implementation, and within single times their largest finite magnitude on a device. In float32, a
// sum of terms of that magnitude cannot be more accurate, even if it is small.
func (m Bench) Close(o golden.Object, key string, got []float64, single float64) {
	if m.Double() {
		o.Close(key, got)
		return
	}
	o.CloseWithin(golden.Tolerance{Abs: single * golden.Largest(o.Array(key).Data)}, key, got)
}
