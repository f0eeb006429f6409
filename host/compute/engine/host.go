package engine

import (
	"context"
	"errors"
	"reflect"
	"runtime/pprof"
	"slices"
	"unsafe"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/dtypes/bfloat16"
	"github.com/gomlx/compute/dtypes/float16"
	"github.com/gomlx/compute/shapes"

	"github.com/cage-qat/cage/host/compute/loops"
	"github.com/cage-qat/cage/host/compute/memory"
)

// A Function is a step of the CPU device that computes slices from slices, such as a plan.
type Function struct {
	Outputs []shapes.Shape
	// Reuses has, for each output, the input whose memory it gets if that input is donated, or −1.
	Reuses []int
	// Halves tells which inputs may also be of bfloat16, though they are declared as float32.
	Halves    []bool
	Temporary int64 // bytes of memory for intermediate values
	// Run computes out from in, whose elements are in row-major order, floats of 16 bits as uint16. It
	// must write every element of out, whose memory is uninitialized, and results must not depend on
	// how many tasks run at once.
	Run func(in, out []any, parallel loops.Parallel) error
}

// Host returns a function as an executable of the CPU device.
func (d *Device) Host(name string, inputs []Spec, f Function) *Executable {
	d.compiled.Add(1)
	return &Executable{device: d, name: name, inputs: inputs, outputs: f.Outputs,
		sharded: make([]bool, len(f.Outputs)), host: &f}
}

// ReadsHalves reports whether an input that is declared as float32 may also be of bfloat16.
func (e *Executable) ReadsHalves(input int) bool { return e.host != nil && e.host.Halves[input] }

// A part is a tensor on one replica: a buffer of a backend, or [hostMemory].
type part interface {
	Finalize() error
	ToFlatData(flat any) error
	Data() (flat any, err error)
}

// hostMemory is a tensor of the CPU device. Elements are those that a [Function] gets.
type hostMemory struct {
	pool     *memory.Pool
	elements any
}

// newHostMemory returns memory for a tensor, which is uninitialized.
func (d *Device) newHostMemory(shape shapes.Shape) *hostMemory {
	element := shape.DType.GoType()
	if shape.DType == dtypes.BFloat16 || shape.DType == dtypes.Float16 {
		element = reflect.TypeFor[uint16]()
	}
	return &hostMemory{&d.memory, d.memory.Get(element, shape.Size())}
}

// Finalize gives the memory back.
func (m *hostMemory) Finalize() error {
	if m.elements != nil {
		m.pool.Put(m.elements)
		m.elements = nil
	}
	return nil
}

// ToFlatData copies the elements.
func (m *hostMemory) ToFlatData(flat any) error {
	copyElements(flat, m.elements)
	return nil
}

// Data returns the elements.
func (m *hostMemory) Data() (any, error) { return m.elements, nil }

// copyElements copies between slices of one type, where floats of 16 bits may be uint16.
func copyElements(dst, src any) {
	reflect.Copy(reflect.ValueOf(bits(dst)), reflect.ValueOf(bits(src)))
}

// bits returns a slice of floats of 16 bits as their bits, and other slices as they are.
func bits(slice any) any {
	switch short := slice.(type) {
	case []bfloat16.BFloat16:
		return unsafe.Slice((*uint16)(unsafe.SliceData(short)), len(short))
	case []float16.Float16:
		return unsafe.Slice((*uint16)(unsafe.SliceData(short)), len(short))
	}
	return slice
}

// elementsOf returns slice as a []T, if that is its type or if both have the same 16 bits.
func elementsOf[T Element](slice any) (data []T, ok bool) {
	if data, ok = slice.([]T); ok {
		return data, true
	}
	short, ok := slice.([]uint16)
	if _, other := bits(data).([]uint16); !ok || !other {
		return nil, false
	}
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(short))), len(short)), true
}

// runHost is Run for a function. data are the buffers of the inputs.
func (e *Executable) runHost(data []part, donate []bool) (outputs []*Buffer, err error) {
	f, d := e.host, e.device
	in, out := make([]any, len(data)), make([]any, len(f.Outputs))
	for i, b := range data {
		if in[i], err = b.Data(); err != nil {
			return nil, err
		}
	}
	results, taken := make([]part, len(f.Outputs)), make([]bool, len(data))
	for i, shape := range f.Outputs {
		if from := f.Reuses[i]; from >= 0 && donate != nil && donate[from] && !taken[from] {
			taken[from], results[i], out[i] = true, data[from], in[from]
			continue
		}
		made := d.newHostMemory(shape)
		results[i], out[i] = made, made.elements
	}
	pprof.Do(context.Background(), pprof.Labels(ProfileLabel, e.name), func(context.Context) {
		loops.ClearUpper()
		err = catch(func() error { return f.Run(in, out, d.Parallel) })
	})
	for i, b := range data { // what was donated is gone, even after an error
		if donate != nil && donate[i] && !taken[i] {
			err = errors.Join(err, b.Finalize())
		}
	}
	for i, b := range results {
		if err != nil {
			err = errors.Join(err, b.Finalize())
			continue
		}
		outputs = append(outputs, newBuffer(d, []part{b}, f.Outputs[i], false))
	}
	return outputs, err
}

// runOnBackend executes a graph of the CPU device, in copies of its inputs.
func (e *Executable) runOnBackend(data []part, donate []bool) (outputs []*Buffer, err error) {
	d := e.device
	backend, err := d.graphBackend()
	if err != nil {
		return nil, err
	}
	buffers := make([]compute.Buffer, len(data))
	for i, b := range data {
		flat, _ := b.Data()
		shape := e.inputs[i].Shape
		if short, ok := flat.([]uint16); ok {
			typed := dtypes.MakeAnySlice(shape.DType, len(short))
			copyElements(typed, short)
			flat = typed
		}
		if buffers[i], err = backend.BufferFromFlatData(0, flat, shape); err != nil {
			return nil, err
		}
		if donate != nil && donate[i] {
			if err := b.Finalize(); err != nil {
				return nil, err
			}
		}
	}
	results, err := e.graph.Executable().Execute(buffers, slices.Repeat([]bool{true}, len(buffers)), 0)
	if err != nil {
		return nil, err
	}
	for i, b := range results {
		made := d.newHostMemory(e.outputs[i])
		flat, err := b.Data()
		if err != nil {
			return nil, err
		}
		copyElements(made.elements, flat)
		outputs = append(outputs, newBuffer(d, []part{made}, e.outputs[i], false))
		if err := b.Finalize(); err != nil {
			return nil, err
		}
	}
	return outputs, nil
}
