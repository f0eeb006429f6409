package conformance

import (
	"fmt"
	"sync"

	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/compute/stage"
	"github.com/cage-qat/cage/internal/lists"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/reference"
	"github.com/cage-qat/cage/sdk/program/transform"
	"github.com/cage-qat/cage/sdk/sdktest"
)

// keptExecutables is the maximum number of compiled programs that a Device caches. Every check runs
// the programs of all settings and shapes, a few hundred for a plugin with several parameters. With
// a smaller cache, each check would recompile them.
const keptExecutables = 1024

// Device executes programs on a device, in binary32, one at a time. It is safe for concurrent use.
type Device struct {
	mu       sync.Mutex
	device   *engine.Device
	compiled map[string]*stage.Executable // by program hash
	hashes   map[*program.Program]string  // of programs that were run
	order    []string                     // program hashes in compilation order
}

var _ sdktest.Machine = (*Device)(nil)

// NewDevice returns a Device that uses d, and must be closed before d is.
func NewDevice(d *engine.Device) *Device {
	return &Device{device: d, compiled: map[string]*stage.Executable{},
		hashes: map[*program.Program]string{}}
}

// Name returns the kind of the device.
func (d *Device) Name() string { return d.device.Kind() }

// Close frees the compiled programs.
func (d *Device) Close() {
	for _, e := range d.compiled {
		e.Close()
	}
	clear(d.compiled)
	clear(d.hashes)
	d.order = nil
}

// Run executes p, which it compiles first unless the executable is cached. Programs are lowered as
// in a training step.
func (d *Device) Run(p *program.Program,
	inputs map[string]reference.Tensor) (map[string]reference.Tensor, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	args := stage.Tensors{}
	defer func() { args.Finalize() }()
	for _, in := range p.Inputs {
		tensor, ok := inputs[in.Name]
		if !ok || !tensor.Type.Equal(in.Type) {
			return nil, fmt.Errorf("program %q: input %q is %s, got %s",
				p.Name, in.Name, in.Type, tensor.Type)
		}
		var err error
		if args[in.Name], err = upload(d.device, tensor); err != nil {
			return nil, err
		}
	}
	compiled, err := d.compile(p, args)
	if err != nil {
		return nil, err
	}
	results := stage.Tensors{}
	if err := compiled.Run(results, args); err != nil {
		return nil, err
	}
	defer results.Finalize()
	outputs := make(map[string]reference.Tensor, len(results))
	for _, o := range p.Outputs {
		if outputs[o.Name], err = download(results[o.Name], p.TypeOf(o.Value)); err != nil {
			return nil, fmt.Errorf("program %q: output %q: %w", p.Name, o.Name, err)
		}
	}
	return outputs, nil
}

func (d *Device) compile(p *program.Program, args stage.Tensors) (*stage.Executable, error) {
	hash, ok := d.hashes[p]
	if !ok {
		hash = p.Hash()
		d.hashes[p] = hash
	}
	if e, ok := d.compiled[hash]; ok {
		return e, nil
	}
	s := stage.Stage{Name: p.Name, Write: func(b *program.Builder,
		in stage.Values) stage.Values {
		values := lists.Map(p.Inputs, func(i program.Input) program.Value { return in[i.Name] })
		return transform.Inline(b, p, values...)
	}}
	for _, in := range p.Inputs {
		spec := engine.Spec{Name: in.Name, Shape: args[in.Name].Shape()}
		s.Inputs = append(s.Inputs, spec)
	}
	e, err := s.Compile(d.device, nil)
	if err != nil {
		return nil, err
	}
	if len(d.order) == keptExecutables {
		d.compiled[d.order[0]].Close()
		delete(d.compiled, d.order[0])
		d.order = d.order[1:]
	}
	d.compiled[hash], d.order = e, append(d.order, hash)
	return e, nil
}

func upload(device *engine.Device, t reference.Tensor) (*engine.Buffer, error) {
	switch t.Type.DType {
	case program.Float:
		return engine.Upload(device, convert[float32](t.Floats), t.Type.Shape...)
	case program.Int:
		return engine.Upload(device, convert[int32](t.Ints), t.Type.Shape...)
	case program.Uint:
		return engine.Upload(device, convert[uint32](t.Ints), t.Type.Shape...)
	default:
		return engine.Upload(device, t.Bools(), t.Type.Shape...)
	}
}

func download(b *engine.Buffer, t program.Type) (reference.Tensor, error) {
	switch t.DType {
	case program.Float:
		data, err := engine.Download[float32](b)
		return reference.Floats(convert[float64](data), t.Shape...), err
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

func convert[To, From int32 | int64 | uint32 | float32 | float64](data []From) []To {
	return lists.Map(data, func(v From) To { return To(v) })
}
