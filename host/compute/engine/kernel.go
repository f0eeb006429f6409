package engine

import (
	"fmt"

	"github.com/gomlx/gomlx/core/graph"
)

// A Kernel is a function for a GPU, written in Triton's intermediate representation, which XLA compiles.
type Kernel struct {
	Name string // name of the function in the text
	Text string
	// Grid is the number of instances of the function, and Warps the number of threads of each, in groups of 32.
	Grid, Warps int
	// Stages is the number of tiles of a loop that are in shared memory at once; 1 if there is no loop.
	Stages int
}

// Call returns the outputs of the kernel for the inputs. They have the number, shapes and element types of the outputs
// of body. Body says what the kernel means: it computes the outputs from its arguments, constants and nothing else. The
// device executes the kernel in its place, and fails to compile the graph if it takes no kernels. Like other functions
// that build graphs, Call panics on a mistake.
func (k Kernel) Call(inputs []*graph.Node, body func(in []*graph.Node) []*graph.Node) []*graph.Node {
	g := inputs[0].Graph()
	r, ok := g.Backend().(*recordingBackend)
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
