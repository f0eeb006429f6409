package engine

import (
	"fmt"

	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"

	"github.com/cage-qat/cage/host/compute/loops"
	"github.com/cage-qat/cage/internal/lists"
)

// A Native is a Go function that the CPU device calls as an operation of a graph, on tensors in
// host memory; for example a bfloat16 product, or a whole quantizer in one pass. It is the CPU's
// counterpart of a [Kernel]. The Go backend has no public way to register one; hidden.go adds it.
type Native struct {
	Name    string         // for errors
	Outputs []shapes.Shape // of the outputs, at least one
	// Run computes out from in. It must write every element of out, whose memory is uninitialized,
	// and must not modify in. It runs concurrent tasks with parallel; results must not depend on
	// how many run at once.
	Run func(in, out []Tensor, parallel Parallel) error

	device *Device // set by Call
}

// A Tensor is a tensor in the host's memory. Flat is a slice of the elements, in row-major order.
// The elements of a bfloat16 tensor are uint16, their bits.
type Tensor struct {
	Shape shapes.Shape
	Flat  any
}

// Call adds a call of the function to a graph for the CPU device and returns its outputs. Gradients
// do not pass through it. Like other functions that build graphs, it panics on a mistake.
func (n Native) Call(inputs ...*graph.Node) []*graph.Node {
	g := inputs[0].Graph()
	if !OnCPU(g) {
		panic(fmt.Errorf("native %s: only the CPU device can call it", n.Name))
	}
	n.device = DeviceOf(g)
	// The graph calls a placeholder function that returns zeros; n replaces the call.
	f := graph.NewFunction(g, g.UniqueName("native"), func(*graph.Graph) []*graph.Node {
		for _, in := range inputs {
			graph.Parameter(g, "", in.Shape())
		}
		defer ownScope(g)()
		return lists.Map(n.Outputs, func(shape shapes.Shape) *graph.Node { return graph.Zeros(g, shape) })
	})
	outputs := f.Call(inputs...)
	setNative(outputs[0], &n)
	for i := range outputs {
		// With the identity, the graph can be differentiated with respect to the output.
		outputs[i] = graph.Identity(graph.StopGradient(outputs[i]))
	}
	return outputs
}

// run calls Run on the backend's tensors. The error of a failure names the native.
func (n *Native) run(in, out []Tensor) error {
	loops.ClearUpper() // the Go backend's operations do not
	if err := catch(func() error { return n.Run(in, out, n.device.Parallel) }); err != nil {
		return fmt.Errorf("native %s: %w", n.Name, err)
	}
	return nil
}
