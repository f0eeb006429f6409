package lower

import (
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/gomlx/core/graph"

	"github.com/cage-qat/cage/host/compute/device"
	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/compute/triton"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/simplify"
)

// Constants of package triton, for callers of [Kernel].
const (
	LargestLoneRow = triton.LargestLoneRow // largest number of elements in a row for [LoneKernel]
	BFloat16       = triton.BFloat16       // a storage for [InMemory]
)

// InMemory says in which type a kernel's float inputs and outputs are stored, by name. The default is float32.
type InMemory map[string]triton.Storage

// Kernel is [Lower] by a kernel: the part of the program that computes rows from rows becomes the kernel, the rest becomes
// nodes. ok is false if the graph's device has no kernels, or if the program does not fit into one.
//
// Inputs and outputs that are stored in bfloat16 are float32 nodes nevertheless, rounded to bfloat16: the device's compiler
// fuses the conversions with the operations that write and read them. Outputs stored in 8 bits are int8 nodes.
func Kernel(g *graph.Graph, p *program.Program, rows int, inputs []*graph.Node, at InMemory) (outputs map[string]*graph.Node, ok bool) {
	if !HasKernels(g) {
		return nil, false
	}
	return kernelOf(g, p, rows, triton.LargestRow, inputs, at)
}

// LoneKernel is [Kernel] for a program that reads a single tensor with elements in every row. Its rows may have up to
// [LargestLoneRow] elements.
func LoneKernel(g *graph.Graph, p *program.Program, rows int, inputs []*graph.Node, at InMemory) (outputs map[string]*graph.Node, ok bool) {
	if !HasKernels(g) {
		return nil, false
	}
	return kernelOf(g, p, rows, triton.LargestLoneRow, inputs, at)
}

// lowerRows is [Kernel], or [Lower] where that is not ok.
func lowerRows(g *graph.Graph, p *program.Program, rows int, inputs []*graph.Node, at InMemory) map[string]*graph.Node {
	if out, ok := Kernel(g, p, rows, inputs, at); ok {
		return out
	}
	out := Lower(g, p, inputs)
	for name, node := range out {
		if at[name] == triton.Int8 {
			out[name] = at.store(name, node)
		}
	}
	return out
}

// kernelOf is [Kernel] for rows of at most the given number of elements. It does not ask whether the device has kernels,
// because the trial that answers this uses it.
func kernelOf(g *graph.Graph, p *program.Program, rows, largest int, inputs []*graph.Node, at InMemory) (outputs map[string]*graph.Node, ok bool) {
	p, err := simplify.Program(p)
	if err != nil {
		panic(err)
	}
	d, err := triton.Divide(p, rows)
	if err != nil {
		panic(err)
	}
	if d.Rows == nil {
		return nil, false
	}
	k, err := triton.New(d.Rows, rows, largest, at)
	if refusal := (*triton.Refusal)(nil); errors.As(err, &refusal) {
		warnOnce(g, refusal, "a program is computed without a kernel, which takes more time and memory")
		return nil, false
	}
	if err != nil {
		panic(err)
	}
	known, inputs := map[string]*graph.Node{}, slices.Clone(inputs)
	for i, in := range p.Inputs {
		known[in.Name] = at.store(in.Name, inputs[i])
		inputs[i] = at.read(in.Name, known[in.Name])
	}
	out := map[string]*graph.Node{}
	if d.Whole != nil {
		out = Lower(g, d.Whole, inputs)
		for name, node := range out {
			if strings.HasPrefix(name, triton.NumberPrefix) { // outputs of the program may have names of inputs
				known[name] = node
			}
		}
	}
	maps.Copy(out, callKernel(k, d.Rows, known, at))
	return out, true
}

// callKernel calls the kernel of a program and returns its outputs by name. known has its inputs as they are stored.
func callKernel(k *triton.Kernel, p *program.Program, known map[string]*graph.Node, at InMemory) map[string]*graph.Node {
	inputs := make([]*graph.Node, len(p.Inputs))
	for i, in := range p.Inputs {
		inputs[i] = known[in.Name]
	}
	results := engine.Kernel(*k).Call(inputs, func(in []*graph.Node) []*graph.Node {
		for i := range in {
			in[i] = at.read(p.Inputs[i].Name, in[i])
		}
		outputs := Outputs(in[0].Graph(), p, in)
		for i, o := range p.Outputs {
			outputs[i] = at.store(o.Name, outputs[i])
		}
		return outputs
	})
	out := map[string]*graph.Node{}
	for i, o := range p.Outputs {
		out[o.Name] = at.read(o.Name, results[i])
	}
	return out
}

// store converts a float32 node to the type in which it is stored.
func (m InMemory) store(name string, x *graph.Node) *graph.Node {
	if m[name] == "" { // bools and integers as well
		return x
	}
	return graph.ConvertDType(x, m.dtype(name))
}

// dtype is the type in which the named input or output is stored.
func (m InMemory) dtype(name string) dtypes.DType { return dtypeOf(m[name]) }

// dtypeOf is the type of a storage, float32 for none.
func dtypeOf(s triton.Storage) dtypes.DType {
	switch s {
	case triton.BFloat16:
		return dtypes.BFloat16
	case triton.Int8:
		return dtypes.Int8
	}
	return dtypes.Float32
}

// read converts a stored node to float32. Codes stay int8.
func (m InMemory) read(name string, x *graph.Node) *graph.Node {
	if m[name] == triton.BFloat16 {
		return graph.ConvertDType(x, dtypes.Float32)
	}
	return x
}

// refusedKernel is the key of a reason for which a device has warned.
type refusedKernel string

// warnOnce warns that a kernel was refused, and what is done in its place: once for each reason, which is the same in all layers.
func warnOnce(g *graph.Graph, refusal *triton.Refusal, inPlace string) {
	engine.DeviceOf(g).Once(refusedKernel(refusal.Reason), func() any {
		engine.DeviceOf(g).Warn(inPlace, "reason", refusal)
		return nil
	})
}

// HasKernels reports whether the graph's device computes programs over rows by kernels.
func HasKernels(g *graph.Graph) bool { return hasKernels(engine.DeviceOf(g)) }

// hasKernels reports whether a device, which may be nil, computes programs over rows by kernels.
func hasKernels(d *engine.Device) bool {
	switch {
	case d == nil:
		return false
	case d.Kernels() == device.BodyKernels:
		return true
	case d.Kind() == device.CPU || d.Precision() != device.BFloat16 || d.Kernels() == device.GraphKernels:
		return false
	case d.Kernels() == device.FusedKernels:
		return true
	}
	err := d.Try(kernelTrial{}, "programs of quantizers are computed without kernels, which takes more time and memory", kernelTrial{}.run)
	return err == nil
}
