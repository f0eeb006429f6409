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
// the process.
var cpuDevice = sync.OnceValues(func() (*device, error) {
	opened, err := engine.Open(engine.CPU, engine.Options{})
	if err != nil {
		return nil, err
	}
	return &device{Device: conformance.NewDevice(opened)}, nil
})

// device runs programs one at a time.
type device struct {
	*conformance.Device
	mu sync.Mutex
}

func (d *device) Run(p *program.Program, inputs map[string]reference.Tensor) (map[string]reference.Tensor, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.Device.Run(p, inputs)
}

func cpu(t testing.TB) *device {
	t.Helper()
	d, err := cpuDevice()
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// CPU compiles programs for the CPU device, float32, and executes them.
func CPU() Machine {
	return Machine{Name: "cpu", Run: func(t testing.TB, p *program.Program, inputs map[string]reference.Tensor) map[string]reference.Tensor {
		t.Helper()
		outputs, err := cpu(t).Run(p, inputs)
		if err != nil {
			t.Fatal(err)
		}
		return outputs
	}}
}
