package engine

import (
	"fmt"
	"reflect"
	"runtime"
	"strings"
	"sync/atomic"
	"unsafe"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes/bfloat16"
	"github.com/gomlx/gomlx/core/graph"
)

// This file accesses unexported parts of GoMLX v0.28.16, github.com/gomlx/compute v0.1.14 and, by
// the names of fields, go-xla v0.4.13; in CUDA builds, the files cuda*.go do as well. If an upgrade
// removes one of these parts, TestHidden fails, and so does every step: the code panics, and
// [Device.Compile] and [Open] return the panic as an error. docs/upstream describes the changes to
// the libraries that would make this unnecessary.

// hidden returns the named field of the struct that ptr points to; it can be set even if
// unexported.
func hidden(ptr any, name string) reflect.Value {
	field := reflect.Indirect(reflect.ValueOf(ptr)).FieldByName(name)
	if !field.IsValid() {
		panic(fmt.Errorf("this build needs the field %s of %T, "+
			"which its versions of GoMLX and go-xla do not have", name, ptr))
	}
	return reflect.NewAt(field.Type(), field.Addr().UnsafePointer()).Elem()
}

// isXLA reports whether a builder is go-xla's. It compares the type's name, because builds without
// CUDA do not link the type.
func isXLA(builder compute.Builder) bool {
	return builder != nil && strings.HasSuffix(reflect.TypeOf(builder).String(), "xla.Builder")
}

// ownScope gives the function that is being built its own caches of constants, reductions and
// closures, until the returned function is called. GoMLX reuses the node of an equal scalar
// constant, and go-xla the function of a reduction; but in go-xla a node created outside a function
// cannot be used inside it, nor the reverse. GoMLX v0.28.16 also makes every closure a child of the
// main function, which go-xla rejects in other functions: a loop or a sort inside a loop's body
// would not build.
func ownScope(g *graph.Graph) (restore func()) {
	var fields, inside []reflect.Value
	fresh := func(of any, names ...string) {
		for _, name := range names {
			field := hidden(of, name)
			fields, inside = append(fields, field), append(inside, reflect.MakeMap(field.Type()))
		}
	}
	fresh(g, "scalars")
	if r, ok := g.Backend().(*recordingBackend); ok && isXLA(r.builder) {
		fresh(r.builder, "cacheReductions", "cacheArgMinMax", "cacheSelections")
		fields = append(fields, hidden(r.builder, "mainFn"))
		inside = append(inside, hidden(g.CurrentFunc(), "backendFunc").Elem())
	}
	outside := make([]reflect.Value, len(fields))
	for i, field := range fields {
		outside[i] = reflect.New(field.Type()).Elem()
		outside[i].Set(field)
		field.Set(inside[i])
	}
	return func() {
		for i, field := range fields {
			field.Set(outside[i])
		}
	}
}

// workersOf returns the Go backend's pool of workers. The backend's configuration string
// ("parallelism=-1") could set its size, too, but then the backend prints a line on standard
// output, which may have to be machine-readable.
func workersOf(backend any) pool { return hidden(backend, "Workers").Interface().(pool) }

// The code below adds [Native] to GoMLX's Go backend, which has no public API for it. The backend
// executes calls of graph functions through a table, in which executeNative replaces the executor
// of calls. If the data of a call's node is a Native, executeNative runs it; all other calls go to
// the original executor.

// executor executes nodes with several outputs. In the backend the pointers are *Backend, *Node and
// *Buffer, types internal to its module. Functions that differ only in pointer types have the same
// calling convention.
type executor func(
	backend, node unsafe.Pointer, inputs []unsafe.Pointer, owned []bool,
) ([]unsafe.Pointer, error)

// executors is the backend's dispatch table, by operation type.
//
//go:linkname executors github.com/gomlx/compute/internal/gobackend.MultiOutputsNodeExecutors
var executors [compute.OpTypeLast]executor

// executeCall is the backend's original executor of calls. init checks it against executeCallName.
var executeCall executor

const executeCallName = "github.com/gomlx/compute/internal/gobackend/ops.execCall"

// init replaces the executor of calls. The backend has filled its table by then, because this
// package imports it.
func init() {
	f := executors[compute.OpTypeCall]
	if f != nil && runtime.FuncForPC(reflect.ValueOf(f).Pointer()).Name() == executeCallName {
		executeCall, executors[compute.OpTypeCall] = f, executeNative
	}
}

// layout describes the backend's types.
type layout struct {
	backend, buffer reflect.Type // what *Backend and *Buffer point to
	data            uintptr      // offset of a node's Data
}

// known is set by [setNative] on its first call.
var known atomic.Pointer[layout]

// executeNative executes a call. The backend allocates the outputs; the inputs still belong to the
// caller.
func executeNative(
	backend, node unsafe.Pointer, inputs []unsafe.Pointer, owned []bool,
) ([]unsafe.Pointer, error) {
	l := known.Load()
	if l == nil {
		return executeCall(backend, node, inputs, owned)
	}
	n, ok := (*(*any)(unsafe.Add(node, l.data))).(*Native)
	if !ok {
		return executeCall(backend, node, inputs, owned)
	}
	tensor := func(buffer unsafe.Pointer) (Tensor, error) {
		c := reflect.NewAt(l.buffer, buffer).Interface().(compute.Buffer)
		shape, err := c.Shape()
		if err != nil {
			return Tensor{}, err
		}
		flat, err := c.Data()
		if short, ok := flat.([]bfloat16.BFloat16); ok { // a view of the same memory
			flat = unsafe.Slice((*uint16)(unsafe.SliceData(short)), len(short))
		}
		return Tensor{shape, flat}, err
	}
	in, out := make([]Tensor, len(inputs)), make([]Tensor, len(n.Outputs))
	results := make([]unsafe.Pointer, len(n.Outputs))
	var err error
	for i, input := range inputs {
		if in[i], err = tensor(input); err != nil {
			return nil, err
		}
	}
	get := reflect.NewAt(l.backend, backend).MethodByName("GetBuffer")
	for i, shape := range n.Outputs {
		made := get.Call([]reflect.Value{reflect.ValueOf(shape)})
		if err, _ := made[1].Interface().(error); err != nil {
			return nil, err
		}
		results[i] = made[0].UnsafePointer()
		if out[i], err = tensor(results[i]); err != nil {
			return nil, err
		}
	}
	return results, n.run(in, out)
}

// setNative makes the device execute n instead of the call that returns output. The backend's node
// for output has the node of the call as its only input.
func setNative(output *graph.Node, n *Native) {
	if executeCall == nil {
		panic(fmt.Errorf("this build needs the function %s, "+
			"which its version of github.com/gomlx/compute does not have", executeCallName))
	}
	result := hidden(output, "outputOps").Index(0).Interface()
	call := hidden(result, "Inputs").Index(0).Interface()
	hidden(call, "Data").Set(reflect.ValueOf(n))
	data, _ := reflect.TypeOf(call).Elem().FieldByName("Data")
	backend := reflect.ValueOf(output.Graph().Backend().(*recordingBackend).Backend)
	buffer := backend.MethodByName("GetBuffer").Type().Out(0)
	known.Store(&layout{backend.Type().Elem(), buffer.Elem(), data.Offset})
}
