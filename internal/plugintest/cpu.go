package plugintest

import (
	"fmt"
	"sync"
	"testing"

	"github.com/cage-qat/cage/host/engine"
	"github.com/cage-qat/cage/host/lower"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/reference"
	"github.com/gomlx/gomlx/core/graph"
)

// cpuDevice is opened by the first test that needs it and shared by all tests of
// the process.
var cpuDevice = sync.OnceValues(func() (*engine.Device, error) {
	return engine.Open(engine.CPU, engine.Options{})
})

// CPU compiles programs for the CPU device, float32, and executes them.
func CPU() Machine {
	return Machine{Name: "cpu", Run: func(t testing.TB, p *program.Program, inputs map[string]reference.Tensor) map[string]reference.Tensor {
		t.Helper()
		device, err := cpuDevice()
		if err != nil {
			t.Fatal(err)
		}
		outputs, err := execute(device, p, inputs)
		if err != nil {
			t.Fatal(err)
		}
		return outputs
	}}
}

// execute compiles p, runs it once and fetches its outputs.
func execute(device *engine.Device, p *program.Program, inputs map[string]reference.Tensor) (outputs map[string]reference.Tensor, err error) {
	specs := make([]engine.Spec, len(p.Inputs))
	args := make([]*engine.Buffer, len(p.Inputs))
	defer func() { engine.FinalizeAll(args...) }()
	for i, in := range p.Inputs {
		tensor, ok := inputs[in.Name]
		if !ok || !tensor.Type.Equal(in.Type) {
			return nil, fmt.Errorf("program %q: input %q is %s, got %s", p.Name, in.Name, in.Type, tensor.Type)
		}
		if args[i], err = upload(device, tensor); err != nil {
			return nil, err
		}
		specs[i] = engine.Spec{Name: in.Name, Shape: args[i].Shape()}
	}
	compiled, err := device.Compile(p.Name, specs, func(g *graph.Graph, nodes []*graph.Node) []*graph.Node {
		named := lower.Lower(g, p, nodes)
		results := make([]*graph.Node, len(p.Outputs))
		for i, o := range p.Outputs {
			results[i] = named[o.Name]
		}
		return results
	})
	if err != nil {
		return nil, err
	}
	defer compiled.Close()
	results, err := compiled.Run(args, nil)
	if err != nil {
		return nil, err
	}
	defer engine.FinalizeAll(results...)
	outputs = make(map[string]reference.Tensor, len(results))
	for i, o := range p.Outputs {
		if outputs[o.Name], err = download(results[i], p.TypeOf(o.Value)); err != nil {
			return nil, fmt.Errorf("output %q: %w", o.Name, err)
		}
	}
	return outputs, nil
}

// upload copies a tensor to the device in the device's element types.
func upload(device *engine.Device, t reference.Tensor) (*engine.Buffer, error) {
	switch t.Type.DType {
	case program.Float:
		return engine.Upload(device, narrow[float32](t.Floats), t.Type.Shape...)
	case program.Int:
		return engine.Upload(device, narrow[int32](t.Ints), t.Type.Shape...)
	case program.Uint:
		return engine.Upload(device, narrow[uint32](t.Ints), t.Type.Shape...)
	default:
		return engine.Upload(device, t.Bools(), t.Type.Shape...)
	}
}

// download fetches a buffer that holds a value of type t.
func download(b *engine.Buffer, t program.Type) (reference.Tensor, error) {
	if b.Shape().Rank() != t.Rank() {
		return reference.Tensor{}, fmt.Errorf("came back as %s, want %s", b.Shape(), t)
	}
	switch t.DType {
	case program.Float:
		data, err := engine.Download[float32](b)
		return reference.Floats(narrow[float64](data), t.Shape...), err
	case program.Int:
		data, err := engine.Download[int32](b)
		return reference.Ints(data, t.Shape...), err
	case program.Uint:
		data, err := engine.Download[uint32](b)
		return reference.Uints(data, t.Shape...), err
	default:
		data, err := engine.Download[bool](b)
		return reference.Bools(data, t.Shape...), err
	}
}

// number is an element type that a tensor is kept or computed in.
type number interface {
	int32 | int64 | uint32 | float32 | float64
}

// narrow converts each element.
func narrow[To, From number](data []From) []To {
	out := make([]To, len(data))
	for i, v := range data {
		out[i] = To(v)
	}
	return out
}
