package engine

import (
	"errors"
	"reflect"
	"slices"
	"unsafe"

	"github.com/cage-qat/cage/host/compute/graph"
	"github.com/cage-qat/cage/host/compute/loops"
	"github.com/cage-qat/cage/host/compute/memory"
	"github.com/cage-qat/cage/host/compute/shapes"
	"github.com/cage-qat/cage/internal/lists"
)

// A Function computes slices from slices on the CPU device, as a plan does.
type Function struct {
	Outputs []shapes.Shape
	// Reuses has, for each output, the input whose memory it gets if that input is donated, or −1.
	Reuses []int
	// BFloat16 tells which inputs may also be of bfloat16, though they are declared as float32.
	BFloat16  []bool
	Temporary int64 // bytes of memory for intermediate values
	// Run computes out from in, row-major slices in which 16-bit floats are uint16. It replaces nil
	// slices in out by memory of [Device.Memory] or by new memory, and writes every element. That
	// memory belongs to the caller, even after an error. Results must not depend on how
	// many tasks run at once.
	Run func(in, out []any, parallel loops.Parallel) error
}

// Host returns a function as an executable of the CPU device.
func (d *Device) Host(name string, inputs []Spec, f Function) *Executable {
	d.compiled.Add(1)
	return &Executable{device: d, name: name, inputs: inputs, outputs: f.Outputs,
		sharded: make([]bool, len(f.Outputs)), host: &f}
}

// ReadsBFloat16 reports whether an input that is declared as float32 may also be of bfloat16.
func (e *Executable) ReadsBFloat16(input int) bool {
	return e.host != nil && e.host.BFloat16[input]
}

// hostMemory is a tensor of the CPU device. Elements are those that a [Function] gets.
type hostMemory struct {
	pool     *memory.Pool
	elements any
}

// newHostMemory returns memory for a tensor, which is uninitialized.
func (d *Device) newHostMemory(shape shapes.Shape) *hostMemory {
	element := shape.DType.GoType()
	if shape.DType == shapes.BFloat16 || shape.DType == shapes.Float16 {
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

// Download implements part.
func (m *hostMemory) Download(dst any) error {
	copyElements(dst, m.elements)
	return nil
}

// copyElements copies between slices of one type, where floats of 16 bits may be uint16.
func copyElements(dst, src any) {
	reflect.Copy(reflect.ValueOf(bits(dst)), reflect.ValueOf(bits(src)))
}

// bits returns a slice of floats of 16 bits as their bits, and other slices as they are.
func bits(slice any) any {
	switch short := slice.(type) {
	case []shapes.BFloat:
		return unsafe.Slice((*uint16)(unsafe.SliceData(short)), len(short))
	case []shapes.Half:
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
		in[i] = b.(*hostMemory).elements
	}
	results, taken := make([]part, len(f.Outputs)), make([]bool, len(data))
	for i := range f.Outputs {
		if from := f.Reuses[i]; from >= 0 && donate != nil && donate[from] && !taken[from] {
			taken[from], results[i], out[i] = true, data[from], in[from]
		}
	}
	loops.ClearUpper()
	err = catch(func() error { return f.Run(in, out, d.Parallel) })
	for i, b := range data { // what was donated is gone, even after an error
		if donate != nil && donate[i] && !taken[i] {
			err = errors.Join(err, b.Finalize())
		}
	}
	for i, b := range results {
		if b == nil {
			b = &hostMemory{&d.memory, out[i]}
		}
		if err != nil {
			err = errors.Join(err, b.Finalize())
			continue
		}
		outputs = append(outputs, newBuffer(d, []part{b}, f.Outputs[i], false))
	}
	return outputs, err
}

// graphOnSlices returns a graph as a function, for tests.
func graphOnSlices(g *graph.Graph) (*Function, error) {
	compute, err := GraphsOnCPU(g)
	if err != nil {
		return nil, err
	}
	main := g.Main()
	f := &Function{Outputs: lists.Map(main.Results, (*graph.Node).Shape),
		Reuses:   slices.Repeat([]int{-1}, len(main.Results)),
		BFloat16: make([]bool, len(main.Parameters))}
	f.Run = func(in, out []any, _ loops.Parallel) error {
		in = slices.Clone(in)
		for i, p := range main.Parameters {
			switch p.DType() {
			case shapes.BFloat16:
				in[i], _ = elementsOf[shapes.BFloat](in[i])
			case shapes.Float16:
				in[i], _ = elementsOf[shapes.Half](in[i])
			}
		}
		results, err := compute(in)
		for i := range results {
			from := reflect.ValueOf(bits(results[i]))
			to := reflect.MakeSlice(from.Type(), from.Len(), from.Len())
			reflect.Copy(to, from)
			out[i] = to.Interface()
		}
		return err
	}
	return f, nil
}
