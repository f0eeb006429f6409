// Package graphexec executes programs of package graph on the CPU, so that tests need no
// accelerator. It computes one operation after another, with the semantics of StableHLO.
package graphexec

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/cage-qat/cage/host/compute/graph"
	"github.com/cage-qat/cage/host/compute/shapes"
	"github.com/cage-qat/cage/internal/lists"
)

// Compile prepares a graph of one replica and returns a function that computes its results from its
// parameters. Both are slices of elements in row-major order, of the Go types that
// [shapes.DType.GoType] returns. The results share no memory with the parameters, nor with each
// other. The function may be called on several goroutines at a time.
func Compile(g *graph.Graph) (run func(in []any) ([]any, error), err error) {
	defer func() {
		switch e := recover().(type) {
		case nil:
		case refusal:
			run, err = nil, e.error
		default:
			panic(e)
		}
	}()
	main := compile(g.Main())
	if g.Replicas() != 1 {
		return nil, fmt.Errorf("a graph for %d replicas is only computed by accelerators", g.Replicas())
	}
	parameters := lists.Map(g.Main().Parameters, (*graph.Node).Shape)
	results := lists.Map(g.Main().Results, (*graph.Node).Shape)
	return func(in []any) ([]any, error) {
		if len(in) != len(parameters) {
			return nil, fmt.Errorf("got %d inputs, want %d", len(in), len(parameters))
		}
		values := make([][]byte, len(in))
		for i, shape := range parameters {
			var ok bool
			if values[i], ok = bytesOf(in[i], shape); !ok {
				return nil, fmt.Errorf("input %d is a %T, want %d elements for %s", i, in[i], shape.Size(),
					shape)
			}
		}
		out := make([]any, len(results))
		for i, value := range main.run(values) {
			if main.shared[i] {
				value = append(newBytes(len(value))[:0], value...)
			}
			out[i] = sliceOf(value, results[i])
		}
		return out, nil
	}, nil
}

// A refusal is an error that ends a compilation.
type refusal struct{ error }

// refuse ends the compilation because of an operation.
func refuse(op *graph.Operation, why string) {
	text := func(nodes []*graph.Node) string {
		return strings.Join(lists.Map(nodes, func(n *graph.Node) string { return n.Shape().String() }),
			", ")
	}
	panic(refusal{fmt.Errorf("operation %s of (%s) to (%s): %s", op.Name, text(op.Args),
		text(op.Results), why)})
}

// attribute returns an attribute of an operation, or a field of an attribute.
func attribute[T any](op *graph.Operation, name string, field ...string) T {
	find := func(list []graph.Attribute, name string) any {
		for _, a := range list {
			if a.Name == name {
				return a.Value
			}
		}
		return nil
	}
	value := find(op.Attributes, name)
	if len(field) > 0 {
		fields, _ := value.(graph.Struct)
		name += "." + field[0]
		value = find(fields.Fields, field[0])
	}
	v, ok := value.(T)
	if !ok {
		refuse(op, fmt.Sprintf("attribute %s is %v", name, value))
	}
	return v
}

// A kernel computes the results of an operation from its operands, which it does not change.
type kernel func(in, out [][]byte)

// A step computes an operation. Its operands and results are in registers.
type step struct {
	run     kernel
	in, out []int
}

// A function is a compiled [graph.Function]. The memory of a value is a register. Several values
// use one register if they have the same elements, or if one is used for the last time before the
// next is computed.
type function struct {
	sizes               []int    // of registers, in bytes
	constants           [][]byte // by register; nil if it has none
	parameters, results []int    // registers
	shared              []bool   // whether a result is a parameter, a constant or an earlier result
	steps               []step
	frames              sync.Pool // of *frame
}

// A frame has the registers of a function that is running.
type frame [][]byte

// sharing reports whether the results of an operation have the memory of its operands.
func sharing(op *graph.Operation) bool {
	switch op.Name {
	case "reshape", "optimization_barrier", "bitcast_convert":
		return true
	}
	return false
}

// compile compiles a function. It checks all operations, of which only those that results need are
// computed.
func compile(f *graph.Function) *function {
	source := map[*graph.Node]*graph.Node{} // of values that have the memory of another
	root := func(n *graph.Node) *graph.Node {
		if s := source[n]; s != nil {
			return s
		}
		return n
	}
	for _, op := range f.Operations {
		if sharing(op) {
			for i, n := range op.Results {
				source[n] = root(op.Args[i])
			}
		}
	}
	last := map[*graph.Node]int{} // the operation that uses a value last
	for _, n := range f.Results {
		last[root(n)] = len(f.Operations)
	}
	needed := func(n *graph.Node) bool {
		_, ok := last[root(n)]
		return ok
	}
	for i, op := range slices.Backward(f.Operations) {
		if slices.ContainsFunc(op.Results, needed) {
			for _, n := range op.Args {
				if !needed(n) {
					last[root(n)] = i
				}
			}
		}
	}

	out := &function{}
	registers, free := map[*graph.Node]int{}, map[int][]int{} // free ones by size
	register := func(n *graph.Node) int { return registers[root(n)] }
	add := func(n *graph.Node, constant []byte) int {
		r := len(out.sizes)
		out.sizes = append(out.sizes, int(n.Shape().ByteSize()))
		out.constants = append(out.constants, constant)
		registers[n] = r
		return r
	}
	for _, n := range f.Parameters {
		out.parameters = append(out.parameters, add(n, nil))
	}
	borrowed := func(r int) bool { return r < len(out.parameters) || out.constants[r] != nil }
	for i, op := range f.Operations {
		if sharing(op) {
			continue
		}
		if value := constant(op); value != nil {
			add(op.Results[0], value)
			continue
		}
		s := step{run: kernelOf(op), in: lists.Map(op.Args, register)}
		if !slices.ContainsFunc(op.Results, needed) {
			continue
		}
		for _, n := range op.Results {
			size := int(n.Shape().ByteSize())
			if list := free[size]; len(list) > 0 {
				registers[n], free[size] = list[len(list)-1], list[:len(list)-1]
			} else {
				add(n, nil)
			}
			s.out = append(s.out, registers[n])
		}
		for _, n := range slices.Concat(op.Args, op.Results) {
			n = root(n)
			if at, ok := last[n]; (!ok || at == i) && !borrowed(registers[n]) {
				free[out.sizes[registers[n]]] = append(free[out.sizes[registers[n]]], registers[n])
				last[n] = len(f.Operations) // it is freed once, even if it is an operand twice
			}
		}
		out.steps = append(out.steps, s)
	}
	out.results = lists.Map(f.Results, register)
	out.shared = lists.Make(len(out.results), func(i int) bool {
		return borrowed(out.results[i]) || slices.Contains(out.results[:i], out.results[i])
	})
	return out
}

// run computes the results of a function. They belong to the caller, except those that are shared.
func (f *function) run(parameters [][]byte) [][]byte {
	regs, ok := f.frames.Get().(*frame)
	if !ok {
		regs = (*frame)(&[][]byte{})
		*regs = slices.Clone(f.constants)
	}
	for i, r := range f.parameters {
		(*regs)[r] = parameters[i]
	}
	var in, out [][]byte
	for _, s := range f.steps {
		in, out = in[:0], out[:0]
		for _, r := range s.in {
			in = append(in, (*regs)[r])
		}
		for _, r := range s.out {
			if (*regs)[r] == nil {
				(*regs)[r] = newBytes(f.sizes[r])
			}
			out = append(out, (*regs)[r])
		}
		s.run(in, out)
	}
	results := lists.Map(f.results, func(r int) []byte { return (*regs)[r] })
	for _, r := range slices.Concat(f.results, f.parameters) {
		(*regs)[r] = f.constants[r]
	}
	f.frames.Put(regs)
	return results
}

// constant returns the value of an operation without operands, or nil.
func constant(op *graph.Operation) []byte {
	switch op.Name {
	case "constant":
		shape := op.Results[0].Shape()
		value := newBytes(int(shape.ByteSize()))
		data, ok := bytesOf(op.Data, shape)
		if !ok {
			data, ok = bytesOf(op.Data, shapes.Make(shape.DType))
			data = bytes.Repeat(data, shape.Size())
		}
		if !ok {
			refuse(op, fmt.Sprintf("its value is a %T of another size", op.Data))
		}
		copy(value, data)
		return value
	case "iota":
		shape, axis := op.Results[0].Shape(), attribute[int](op, "iota_dimension")
		inner := shapes.Make(shape.DType, shape.Dimensions[axis+1:]...).Size()
		index := newBytes(4 * shape.Size())
		for i := range as[int32](index) {
			as[int32](index)[i] = int32(i / inner % shape.Dimensions[axis])
		}
		value := newBytes(int(shape.ByteSize()))
		converter(shapes.Int32, shape.DType, false)(value, index)
		return value
	}
	return nil
}

// kernelOf returns the kernel of an operation.
func kernelOf(op *graph.Operation) kernel {
	switch op.Name {
	case "custom_call", "all_reduce", "all_gather", "reduce_scatter":
		panic(refusal{fmt.Errorf("operations %s are only computed by accelerators", op.Name)})
	case "convert":
		return convert(op)
	case "select":
		return choose(op)
	case "transpose", "broadcast_in_dim", "slice", "reverse":
		return rearrange(op)
	case "concatenate":
		return concatenate(op)
	case "pad":
		return pad(op)
	case "dynamic_slice", "dynamic_update_slice":
		return dynamic(op)
	case "gather":
		return gather(op)
	case "reduce", "scatter":
		return reduction(op)
	case "dot_general":
		return product(op)
	case "while":
		return while(op)
	}
	return elementwise(op)
}

// while returns the kernel of a loop.
func while(op *graph.Operation) kernel {
	condition, body := compile(op.Bodies[0]), compile(op.Bodies[1])
	return func(in, out [][]byte) {
		values := slices.Clone(in)
		for as[bool](condition.run(values)[0])[0] {
			values = body.run(values)
		}
		for i, v := range values {
			copy(out[i], v)
		}
	}
}
