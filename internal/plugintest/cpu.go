package plugintest

import (
	"sync"
	"testing"

	"github.com/cage-qat/cage/host/conformance"
	"github.com/cage-qat/cage/host/engine"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/reference"
)

// cpuDevice is opened by the first test that needs it and shared by all tests of
// the process, one at a time.
var (
	cpuDevice = sync.OnceValues(func() (*conformance.Device, error) {
		device, err := engine.Open(engine.CPU, engine.Options{})
		if err != nil {
			return nil, err
		}
		return conformance.NewDevice(device), nil
	})
	cpuMutex sync.Mutex
)

// CPU compiles programs for the CPU device, float32, and executes them.
func CPU() Machine {
	return Machine{Name: "cpu", Run: func(t testing.TB, p *program.Program, inputs map[string]reference.Tensor) map[string]reference.Tensor {
		t.Helper()
		device, err := cpuDevice()
		if err != nil {
			t.Fatal(err)
		}
		cpuMutex.Lock()
		defer cpuMutex.Unlock()
		outputs, err := device.Run(p, inputs)
		if err != nil {
			t.Fatal(err)
		}
		return outputs
	}}
}
