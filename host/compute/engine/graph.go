package engine

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/gomlx/core/graph"
	"github.com/gomlx/gomlx/core/tensors"

	"github.com/cage-qat/cage/host/compute/device"
)

// Constant returns a node with the given dimensions and elements, in row-major order. Use it for
// large tables: GoMLX's constants visit each element of nested slices by reflection. Like other
// functions that build graphs, Constant panics on a mistake.
func Constant[T Element](g *graph.Graph, data []T, dims ...int) *graph.Node {
	if _, err := makeShape(dtypes.FromGenericsType[T](), len(data), dims); err != nil {
		panic(err)
	}
	return graph.ConstTensor(g, tensors.FromFlatDataAndDimensions(data, dims...))
}

// deviceKey is the key under which a graph keeps its device.
type deviceKey struct{}

// DeviceOf returns the device for which the graph is built; nil if [Device.Compile] did not create
// it.
func DeviceOf(g *graph.Graph) *Device {
	d, _ := g.State(deviceKey{}).(*Device)
	return d
}

// InBFloat16 reports whether the graph's device was opened with [device.BFloat16].
func InBFloat16(g *graph.Graph) bool {
	d := DeviceOf(g)
	return d != nil && d.options.Precision == device.BFloat16
}

// Operand returns x in the element type in which [DotGeneral] reads it, so that the operand of
// several products is converted only once.
func Operand(x *graph.Node) *graph.Node {
	if !InBFloat16(x.Graph()) {
		return x
	}
	if OnCPU(x.Graph()) { // the Go backend multiplies no bfloat16
		return Rounded(x)
	}
	if known, ok := NoteOf[operand](x); ok {
		return known.rounded
	}
	return graph.ConvertDType(x, dtypes.BFloat16)
}

type operand struct{ rounded *graph.Node }

// NoteOperand records that rounded is x in bfloat16, so that [Operand] need not convert x.
func NoteOperand(x, rounded *graph.Node) { Note(x, operand{rounded}) }

// DotGeneral multiplies two float32 nodes like GoMLX's function of that name, with operands rounded
// to the precision of the graph's device; the sums and the result are float32. Use GoMLX's for
// products that must not be rounded.
func DotGeneral(
	a *graph.Node, aContracted, aBatch []int, b *graph.Node, bContracted, bBatch []int,
) *graph.Node {
	return product{a, aContracted, aBatch, b, bContracted, bBatch}.dot(false)
}

// DotGeneralRounded is [DotGeneral] with its float32 result also rounded to the device's precision.
// In bfloat16 it takes half the memory until an elementwise operation reads it.
func DotGeneralRounded(
	a *graph.Node, aContracted, aBatch []int, b *graph.Node, bContracted, bBatch []int,
) *graph.Node {
	return product{a, aContracted, aBatch, b, bContracted, bBatch}.dot(true)
}

// ExactDot is [DotGeneral] in float32, whatever the precision of the device.
func ExactDot(
	a *graph.Node, aContracted, aBatch []int, b *graph.Node, bContracted, bBatch []int,
) *graph.Node {
	return graph.DotGeneral(a, aContracted, aBatch, b, bContracted, bBatch)
}

// product holds the operands of a product, with their contracted and batch axes.
type product struct {
	a                   *graph.Node
	aContracted, aBatch []int
	b                   *graph.Node
	bContracted, bBatch []int
}

func (p product) dot(rounded bool) *graph.Node {
	g := p.a.Graph()
	if !InBFloat16(g) || OnCPU(g) {
		a, b := Operand(p.a), Operand(p.b)
		y := graph.DotGeneral(a, p.aContracted, p.aBatch, b, p.bContracted, p.bBatch)
		if rounded {
			y = Rounded(y)
		}
		return y
	}
	result := dtypes.Float32
	if rounded {
		result = dtypes.BFloat16
	}
	dot := graph.Dot(Operand(p.a), Operand(p.b))
	dot = dot.WithAccumulatorDType(dtypes.Float32).WithOutputDType(result)
	y := dot.General(p.aContracted, p.aBatch, p.bContracted, p.bBatch)
	return graph.ConvertDType(y, dtypes.Float32)
}

// Rounded returns x, rounded to the precision of the graph's device, as a float32 node.
func Rounded(x *graph.Node) *graph.Node {
	if !InBFloat16(x.Graph()) {
		return x
	}
	short := graph.ConvertDType(x, dtypes.BFloat16)
	if !OnCPU(x.Graph()) {
		short = graph.OptimizationBarriers(short)[0] // else XLA would elide both conversions
	}
	return graph.ConvertDType(short, dtypes.Float32)
}

// OnCPU reports whether the graph is built for the CPU device.
func OnCPU(g *graph.Graph) bool {
	d := DeviceOf(g)
	return d == nil || d.SharesMemory()
}

// Replicas returns the number of replicas that will run the graph, each on its own shard of the
// sharded inputs.
func Replicas(g *graph.Graph) int { return g.NumDevices() }

// SumAcross returns, for each node, the sum of its values on all replicas. The sum is the same on
// every replica. With one replica, it returns the nodes themselves.
func SumAcross(nodes ...*graph.Node) []*graph.Node { return across(compute.ReduceOpSum, nodes) }

// MaxAcross is like [SumAcross] but computes maxima.
func MaxAcross(nodes ...*graph.Node) []*graph.Node { return across(compute.ReduceOpMax, nodes) }

// MinAcross is like [SumAcross] but computes minima.
func MinAcross(nodes ...*graph.Node) []*graph.Node { return across(compute.ReduceOpMin, nodes) }

func across(op compute.ReduceOpType, nodes []*graph.Node) []*graph.Node {
	all := make([]*graph.Node, len(nodes))
	for i, node := range nodes {
		all[i] = node
		if g := node.Graph(); Replicas(g) > 1 {
			// One all-reduce per node: XLA can start the first before the last operand is computed.
			all[i] = g.Distributed().AllReduceOne(node, op)
		}
	}
	return all
}

// DotIntegers returns a·bᵀ, float32 [m, n], for two int8 nodes [m, k] and [n, k], with row i
// scaled by rows[i] ([m, 1]) and column j by columns[j] ([n, 1], or nil). The sums are exact for k
// up to [matmul.MaxCodes]. If rounded is set, the result is rounded to the precision of the device.
func DotIntegers(a, b, rows, columns *graph.Node, rounded bool) *graph.Node {
	var y *graph.Node
	if OnCPU(a.Graph()) {
		a, b = graph.ConvertDType(a, dtypes.Float32), graph.ConvertDType(b, dtypes.Float32)
		y = graph.DotGeneral(a, []int{1}, nil, b, []int{1}, nil)
	} else {
		sums := graph.Dot(a, b).WithOutputDType(dtypes.Int32).General([]int{1}, nil, []int{1}, nil)
		y = graph.ConvertDType(sums, dtypes.Float32)
	}
	dims := y.Shape().Dimensions
	y = graph.Mul(y, graph.BroadcastToDims(rows, dims...))
	if columns != nil {
		y = graph.Mul(y, graph.BroadcastToDims(graph.Reshape(columns, 1, -1), dims...))
	}
	if rounded {
		y = Rounded(y)
	}
	return y
}

// LoopBody computes the next state of a loop, with the same shapes as state. i is the iteration
// index, an int32 scalar that starts at 0, and fixed are the loop-invariant values. LoopBody must
// not use other nodes.
type LoopBody func(i *graph.Node, fixed, state []*graph.Node) []*graph.Node

// Loop applies a body n times to a state, in the memory of one iteration, and returns the final
// state. It has no gradient. On the CPU the loop is unrolled in the graph: GoMLX v0.28.16 compiles
// the body of a loop before a pass that changes the body, so that a loop with broadcasts fails at
// run time.
func Loop(g *graph.Graph, n int, fixed, state []*graph.Node, body LoopBody) []*graph.Node {
	if OnCPU(g) {
		for i := range n {
			state = body(graph.Const(g, int32(i)), fixed, state)
		}
		return state
	}
	all := append(append([]*graph.Node{graph.Const(g, int32(0))}, fixed...), state...)
	more := closure(g, all, func(in []*graph.Node) []*graph.Node {
		return []*graph.Node{graph.LessThan(in[0], graph.Const(g, int32(n)))}
	})
	round := closure(g, all, func(in []*graph.Node) []*graph.Node {
		i, fixed, state := in[0], in[1:1+len(fixed)], in[1+len(fixed):]
		next := append([]*graph.Node{graph.Add(i, graph.Const(g, int32(1)))}, fixed...)
		return append(next, body(i, fixed, state)...)
	})
	return graph.While(more, round, all...)[1+len(fixed):]
}

// closure returns a function for a loop, with parameters of the same shapes as like. Their names
// are unique, because in StableHLO a nested loop sees the names of the enclosing body.
func closure(
	g *graph.Graph, like []*graph.Node, build func(in []*graph.Node) []*graph.Node,
) *graph.Function {
	r, ok := g.Backend().(*recordingBackend)
	if !ok {
		panic(errors.New("loop: the graph was not created by a Device"))
	}
	r.closures++
	prefix := fmt.Sprintf("closure%d_", r.closures)
	return graph.NewClosure(g, func(*graph.Graph) []*graph.Node {
		in := make([]*graph.Node, len(like))
		for i, node := range like {
			in[i] = graph.Parameter(g, fmt.Sprint(prefix, i), node.Shape())
		}
		defer ownScope(g)()
		return build(in)
	})
}

// recordingBackend records facts about the graph that is built on it.
type recordingBackend struct {
	compute.Backend
	builder  compute.Builder       // nil until the graph has a node
	notes    map[*graph.Node][]any // see Note
	closures int                   // number of loop functions so far
	// functions holds the placeholder functions; callees maps their names to what they stand for.
	functions map[placeholder]*graph.Function
	callees   map[string]callee
}

// A callee is a kernel, or a collective over all replicas that GoMLX lacks. Until the graph is
// compiled, a call of a placeholder function stands for it.
type callee struct {
	kernel     Kernel
	collective collective // "" for a kernel
}

type placeholder struct {
	callee callee
	inputs string // their shapes
}

// call applies the callee to inputs. body has the same signature; it is executed on devices that do
// not replace the placeholder.
func (c callee) call(
	inputs []*graph.Node, body func(in []*graph.Node) []*graph.Node,
) []*graph.Node {
	g, prefix := inputs[0].Graph(), cmp.Or(string(c.collective), "kernel")
	r, ok := g.Backend().(*recordingBackend)
	if !ok {
		panic(fmt.Errorf("%s %s: the graph was not created by a Device", prefix, c.kernel.Name))
	}
	key := placeholder{callee: c}
	for _, in := range inputs {
		key.inputs += in.Shape().String()
	}
	f, ok := r.functions[key]
	if !ok {
		name := fmt.Sprintf("%s_%d", prefix, len(r.functions))
		f = graph.NewFunction(g, name, func(*graph.Graph) []*graph.Node {
			parameters := make([]*graph.Node, len(inputs))
			for i, in := range inputs {
				parameters[i] = graph.Parameter(g, "", in.Shape())
			}
			defer ownScope(g)()
			return body(parameters)
		})
		if r.functions == nil {
			r.functions, r.callees = map[placeholder]*graph.Function{}, map[string]callee{}
		}
		r.functions[key], r.callees[name] = f, c
	}
	return f.Call(inputs...)
}

// Builder implements compute.Backend.
func (r *recordingBackend) Builder(name string) compute.Builder {
	r.builder = r.Backend.Builder(name)
	return r.builder
}

// Note attaches a note to a node, for code that uses the node later in the same graph. A later note
// of the same type takes precedence. In graphs not created by a Device it has no effect.
func Note(n *graph.Node, what any) {
	if r, ok := n.Graph().Backend().(*recordingBackend); ok {
		if r.notes == nil {
			r.notes = map[*graph.Node][]any{}
		}
		r.notes[n] = append(r.notes[n], what)
	}
}

// NoteOf returns the note of type T attached to a node; ok is false if there is none.
func NoteOf[T any](n *graph.Node) (note T, ok bool) {
	if r, recorded := n.Graph().Backend().(*recordingBackend); recorded {
		for _, what := range slices.Backward(r.notes[n]) {
			if note, ok = what.(T); ok {
				return note, true
			}
		}
	}
	return note, false
}

// CopyNotes attaches the notes of node src to node dst of the same graph.
func CopyNotes(dst, src *graph.Node) {
	if r, ok := dst.Graph().Backend().(*recordingBackend); ok {
		for _, what := range r.notes[src] {
			Note(dst, what)
		}
	}
}

// A Kernel is a GPU kernel in Triton's intermediate representation (MLIR), which XLA compiles.
type Kernel struct {
	Name string // name of the function in Text
	Text string
	// Grid is the number of instances (blocks), and Warps the number of warps of each.
	Grid, Warps int
}

// Call returns the outputs of the kernel for the inputs. They have the number, shapes and element
// types of the outputs of body, the reference implementation, which computes the outputs from its
// arguments and constants only. The device executes the kernel instead of body. Graphs with kernels
// do not compile on devices without them.
func (k Kernel) Call(
	inputs []*graph.Node, body func(in []*graph.Node) []*graph.Node,
) []*graph.Node {
	return callee{kernel: k}.call(inputs, body)
}

// KernelsIn returns the kernels that a graph calls so far, keyed by the names of their placeholder
// functions.
func KernelsIn(g *graph.Graph) map[string]Kernel {
	kernels := map[string]Kernel{}
	for name, c := range g.Backend().(*recordingBackend).callees {
		if c.collective == "" {
			kernels[name] = c.kernel
		}
	}
	return kernels
}
