package lower

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/cage-qat/cage/host/compute/device"
	"github.com/cage-qat/cage/host/compute/engine"
	"github.com/cage-qat/cage/host/compute/graph"
	"github.com/cage-qat/cage/host/compute/passes"
	"github.com/cage-qat/cage/host/compute/shapes"
	"github.com/cage-qat/cage/host/compute/triton"
	"github.com/cage-qat/cage/internal/lists"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/program/transform"
)

// InMemory maps names of a kernel's float inputs and outputs to their storage types. The default is
// float32.
type InMemory map[string]passes.Storage

// Kernel lowers a program to a kernel: the row-wise part of the program becomes the kernel, the
// rest becomes nodes. ok is false if the graph's device has no kernels of the subject's kind, or if
// the program cannot be a kernel.
//
// Inputs and outputs stored in bfloat16 are still float32 nodes, rounded to bfloat16: the device's
// compiler fuses the conversions with the operations that write and read them. Outputs stored in 8
// bits are int8 nodes.
func Kernel(
	g *graph.Graph, s Subject, p *program.Program, rows int, inputs []*graph.Node, at InMemory,
) (outputs map[string]*graph.Node, ok bool) {
	if !hasKernels(engine.DeviceOf(g), s) {
		return nil, false
	}
	return kernelOf(g, p, rows, s.Largest, inputs, at)
}

// lowerRows lowers a program with [Kernel] if possible, else with [Lower]. It returns the outputs
// in the order of the program.
func lowerRows(
	g *graph.Graph, p *program.Program, rows int, inputs []*graph.Node, at InMemory,
) []*graph.Node {
	if out, ok := Kernel(g, subjectOf(p, rows, false), p, rows, inputs, at); ok {
		return inOrder(p, out)
	}
	out := Outputs(g, p, inputs)
	for i, o := range p.Outputs {
		if at[o.Name] == passes.Int8 {
			out[i] = at.store(o.Name, out[i])
		}
	}
	return out
}

// kernelOf is [Kernel] for rows of at most the given number of elements. It does not check whether
// the device has kernels, because it is also called by the trial that determines this.
func kernelOf(
	g *graph.Graph, p *program.Program, rows, largest int, inputs []*graph.Node, at InMemory,
) (outputs map[string]*graph.Node, ok bool) {
	p, err := transform.Expand(p, nil, "")
	if err == nil {
		p, err = transform.Simplify(p)
	}
	if err != nil {
		panic(err)
	}
	replicas := 1 // that share the rows
	if slices.ContainsFunc(inputs, engine.HasRows) {
		replicas = g.Replicas()
	}
	d, err := triton.Divide(p, rows)
	if err != nil {
		panic(err)
	}
	if d.Rows == nil {
		return nil, false
	}
	call, err := tritonKernel(d.Rows, rows, largest, replicas, at)
	if refusal, ok := errors.AsType[*passes.Refusal](err); ok {
		warnOnce(g, refusal)
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
		for name, node := range out { // outputs of the program may have names of inputs
			if strings.HasPrefix(name, passes.NumberPrefix) {
				known[name] = node
			}
		}
	}
	in := make([]*graph.Node, len(d.Rows.Inputs))
	for i, input := range d.Rows.Inputs {
		in[i] = known[input.Name]
		if replicas > 1 && hasPartOfRows(d.Rows, program.ID(i), rows) {
			in[i] = engine.Rows(in[i])
		}
	}
	results := call(in)
	for i, o := range d.Rows.Outputs {
		if replicas > 1 {
			results[i] = engine.Gather(results[i])
		}
		out[o.Name] = at.read(o.Name, results[i])
	}
	return out, true
}

// hasPartOfRows reports whether a value of a program over rows has separate elements for each row.
func hasPartOfRows(p *program.Program, id program.ID, rows int) bool {
	_, ok := passes.LayoutOf(p.TypeOf(id), rows)
	return ok && !passes.IsShared(p, id, rows)
}

// A kernelCall calls the kernel of a program with the given inputs and returns the stored outputs.
type kernelCall func(inputs []*graph.Node) []*graph.Node

// kernelTarget is the name by which XLA calls a Triton kernel.
const kernelTarget = "__gpu$xla.gpu.triton"

// kernelsKey is the key under which a graph keeps the kernels that it calls.
type kernelsKey struct{}

// KernelsIn returns the kernels that a graph calls so far.
func KernelsIn(g *graph.Graph) []triton.Kernel {
	kernels, _ := g.State(kernelsKey{}).([]triton.Kernel)
	return kernels
}

// tritonKernel compiles a program over rows to a GPU kernel, which a device with
// [device.BodyKernels] executes operation by operation instead. Each replica computes its own rows.
// Graphs with kernels do not compile on devices without them.
func tritonKernel(
	p *program.Program, rows, largest, replicas int, at InMemory,
) (kernelCall, error) {
	local := p
	if replicas > 1 {
		var ok bool
		if local, ok = shardOfRows(p, rows, replicas); !ok {
			return nil, &passes.Refusal{Program: p.Name,
				Reason: fmt.Sprintf("its %d rows cannot be sharded over %d replicas", rows, replicas)}
		}
	}
	k, err := triton.New(local, rows/replicas, largest, at)
	if err != nil {
		return nil, err
	}
	results := lists.Map(local.Outputs, func(o program.Output) shapes.Shape {
		shape := ShapeOf(local.TypeOf(o.Value))
		if at[o.Name] != "" {
			shape.DType = at.dtype(o.Name)
		}
		return shape
	})
	return func(inputs []*graph.Node) []*graph.Node {
		g := inputs[0].Graph()
		g.Attach(kernelsKey{}, append(KernelsIn(g), *k))
		if engine.DeviceOf(g).Kernels() == device.BodyKernels {
			in := slices.Clone(inputs)
			for i := range in {
				in[i] = at.read(p.Inputs[i].Name, in[i])
			}
			outputs := Outputs(g, local, in)
			for i, o := range p.Outputs {
				outputs[i] = at.store(o.Name, outputs[i])
			}
			return outputs
		}
		config := fmt.Sprintf(`{debug = false, grid_x = %d : i32, grid_y = 1 : i32, `+
			`grid_z = 1 : i32, ir = %s, name = %s, num_stages = 1 : i32, num_warps = %d : i32}`,
			k.Grid, graph.Quoted(k.Text), graph.Quoted(k.Name), k.Warps)
		return graph.CustomCall(kernelTarget, inputs, results,
			graph.Attribute{Name: "api_version", Value: "4 : i32"},
			graph.Attribute{Name: "backend_config", Value: config})
	}, nil
}

func (m InMemory) store(name string, x *graph.Node) *graph.Node {
	if m[name] == "" { // bools and integers as well
		return x
	}
	return engine.Converted(x, m.dtype(name))
}

// dtype returns the type in which the named input or output is stored.
func (m InMemory) dtype(name string) shapes.DType {
	switch m[name] {
	case passes.BFloat16:
		return shapes.BFloat16
	case passes.Int8:
		return shapes.Int8
	}
	return shapes.Float32
}

// read converts a stored node to float32. Codes stay int8.
func (m InMemory) read(name string, x *graph.Node) *graph.Node {
	if m[name] == passes.BFloat16 {
		return engine.Converted(x, shapes.Float32)
	}
	return x
}

// refusedKernel is the [engine.Device.Once] key for a reason that has been reported in a warning.
type refusedKernel string

// warnOnce warns that a kernel was refused, once for each reason, because the same programs recur
// in every layer.
func warnOnce(g *graph.Graph, refusal *passes.Refusal) {
	d := engine.DeviceOf(g)
	d.Once(refusedKernel(refusal.Reason), func() any {
		d.Warn("a program is computed operation by operation, which takes more time and memory",
			"reason", refusal)
		return nil
	})
}

// HasKernels reports whether the graph's device may use kernels for programs over rows.
func HasKernels(g *graph.Graph) bool { return hasTriton(engine.DeviceOf(g)) }

// hasTriton reports whether a device may use GPU kernels for programs over rows.
func hasTriton(d *engine.Device) bool {
	return d.Kernels() == device.BodyKernels || d.Kind() != device.CPU &&
		d.Precision() == device.BFloat16 && d.Kernels() != device.GraphKernels
}
