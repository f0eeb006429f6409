package engine

import (
	"fmt"

	"github.com/gomlx/gomlx/core/graph"
)

// Kernels is a way to compute programs of plugins on a GPU.
type Kernels string

// The ways.
const (
	AutoKernels  Kernels = "auto"  // FusedKernels where a trial shows that they are right, else GraphKernels
	FusedKernels Kernels = "fused" // a program that fits one kernel is one; an error where the device takes none
	GraphKernels Kernels = "graph" // operations, which the compiler joins as it likes
	BodyKernels  Kernels = "body"  // as FusedKernels, but each call computes what the kernel means: for tests, on any device
)

// A Kernel is a function for a GPU in the text of Triton's intermediate representation, which XLA compiles.
type Kernel struct {
	Name string // of the function in the text
	Text string
	// Grid is the number of its instances, and Warps the number of threads of each, in groups of 32.
	Grid, Warps int
	// Stages is how many tiles of a loop are in shared memory at once; 1 where there is no loop.
	Stages int
}

// Call returns the outputs of the kernel for the inputs: those of body, which must be as many, of the same shapes and
// element types. Body says what the kernel means: it computes the outputs from its arguments, constants and nothing else.
// The device executes the kernel in its place, and fails to compile the graph where it takes no kernels. Call builds
// graphs and panics.
func (k Kernel) Call(inputs []*graph.Node, body func(in []*graph.Node) []*graph.Node) []*graph.Node {
	g := inputs[0].Graph()
	r, ok := g.Backend().(*recording)
	if !ok {
		panic(fmt.Errorf("kernel %s: the graph is not built by a device", k.Name))
	}
	key := kernelKey{k, ""}
	for _, in := range inputs {
		key.inputs += in.Shape().String()
	}
	f, ok := r.functions[key]
	if !ok {
		name := fmt.Sprintf("kernel_%d", len(r.functions))
		f = graph.NewFunction(g, name, func(*graph.Graph) []*graph.Node {
			parameters := make([]*graph.Node, len(inputs))
			for i, in := range inputs {
				parameters[i] = graph.Parameter(g, "", in.Shape())
			}
			defer ownScope(g)()
			return body(parameters)
		})
		if r.functions == nil {
			r.functions, r.kernels = map[kernelKey]*graph.Function{}, map[string]Kernel{}
		}
		r.functions[key], r.kernels[name] = f, k
	}
	return f.Call(inputs...)
}

// kernelKey is what the function that stands for a kernel depends on.
type kernelKey struct {
	kernel Kernel
	inputs string // their shapes
}
