package engine

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"
)

// A Native is a function of ours that the CPU device calls in the middle of a graph, on tensors in the host's memory: a
// product in bfloat16, or a quantizer in one pass. It is to the CPU what a [Kernel] is to a GPU. The Go backend has no public
// way to register one; hiddencpu.go makes it.
type Native struct {
	Name    string         // for errors
	Outputs []shapes.Shape // of the outputs, at least one
	// Run computes out from in. It writes every element of out, whose memory holds anything before, and leaves in as it
	// is. Tasks that may run at once are given to parallel. Its results do not depend on how many run at once.
	Run func(in, out []Tensor, parallel Parallel) error
}

// A Tensor is a tensor in the host's memory. Flat is a slice of the Go type of its element type, in row-major order; bfloat16
// comes as its bits, []uint16.
type Tensor struct {
	Shape shapes.Shape
	Flat  any
}

// Parallel calls f with 0 to n−1, several at once where the device has goroutines for them, and returns when all calls have
// returned. If a call panics, so does Parallel.
type Parallel func(n int, f func(i int))

// Call returns the outputs of the function for the inputs, on the CPU device. Gradients do
// not pass through it. Like other functions that build graphs, it panics on a mistake.
func (n Native) Call(inputs ...*graph.Node) []*graph.Node {
	g := inputs[0].Graph()
	if !OnCPU(g) {
		panic(fmt.Errorf("native %s: only the CPU device calls natives", n.Name))
	}
	if err := nativesLack(); err != nil {
		panic(fmt.Errorf("native %s: %w", n.Name, err))
	}
	outputs := n.call(g, inputs)
	for i := range outputs {
		// Gradients with respect to an output are those of the identity behind it: at a node that stops them they are zero.
		outputs[i] = graph.Identity(graph.StopGradient(outputs[i]))
	}
	return outputs
}

// call builds the call of a function that returns zeros, and puts n in its place.
func (n Native) call(g *graph.Graph, inputs []*graph.Node) []*graph.Node {
	f := graph.NewFunction(g, g.UniqueName("native"), func(*graph.Graph) []*graph.Node {
		for _, in := range inputs {
			graph.Parameter(g, "", in.Shape())
		}
		defer ownScope(g)()
		outputs := make([]*graph.Node, len(n.Outputs))
		for i, shape := range n.Outputs {
			outputs[i] = graph.Zeros(g, shape)
		}
		return outputs
	})
	outputs := f.Call(inputs...)
	if err := setNative(outputs[0], &n); err != nil {
		panic(fmt.Errorf("native %s: %w", n.Name, err))
	}
	return outputs
}

// pool starts goroutines within a device's limit. It is implemented by the Go backend's pool of workers.
type pool interface {
	StartIfAvailable(task func()) bool
	IsUnlimited() bool
}

// parallelOn is [Parallel] on a pool of workers. The caller's goroutine works, too, so that all is done even if the pool has no
// goroutine left.
func parallelOn(workers pool) Parallel {
	return func(n int, f func(i int)) {
		if n == 1 {
			f(0)
			return
		}
		var next atomic.Int64
		var failed atomic.Pointer[any] // the first panic
		work := func() {
			defer func() {
				if r := recover(); r != nil {
					failed.CompareAndSwap(nil, &r)
					next.Store(int64(n))
				}
			}()
			for i := next.Add(1) - 1; i < int64(n); i = next.Add(1) - 1 {
				f(int(i))
			}
		}
		var running sync.WaitGroup
		for range min(n, runtime.GOMAXPROCS(0)) - 1 {
			running.Add(1)
			help := func() { defer running.Done(); work() }
			if !callHelper(workers, help) && !workers.StartIfAvailable(func() { help(); linger(workers) }) {
				running.Done()
				break
			}
		}
		work()
		running.Wait()
		if r := failed.Load(); r != nil {
			panic(*r)
		}
	}
}

// runNative runs a native inside the backend. Every failure is an error that names it.
func runNative(n *Native, in, out []Tensor, workers pool) error {
	err := catch(func() error { return n.Run(in, out, parallelOn(workers)) })
	if p := (*panicError)(nil); errors.As(err, &p) {
		return &panicError{fmt.Errorf("native %s: %w", n.Name, p.cause), p.stack}
	} else if err != nil {
		return fmt.Errorf("native %s: %w", n.Name, err)
	}
	return nil
}
