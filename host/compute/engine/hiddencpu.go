package engine

import (
	"errors"
	"fmt"
	"reflect"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/gomlx/compute"
	"github.com/gomlx/compute/dtypes"
	"github.com/gomlx/compute/dtypes/bfloat16"
	"github.com/gomlx/compute/gobackend"
	"github.com/gomlx/compute/shapes"
	"github.com/gomlx/gomlx/core/graph"
)

// This file puts a [Native] into GoMLX's Go backend, which has no public way to do that: it reaches into hidden parts of
// github.com/gomlx/compute v0.1.14. The backend executes the call of a graph's function by a function in a table. A function of
// ours takes its place in the table. Where the data of a call's node is a Native, it runs that; all other calls go on to the
// backend's own. docs/upstream has a patch with which the backend would offer this itself.
//
// [nativesLack] tries all of it once, on a graph of its own. If an upgrade changes what this relies on, the CPU device does not open.

// executor executes nodes with several outputs. In the backend the pointers have types: *Backend, *Node and *Buffer, which are
// internal to its module. Functions that differ in the types of pointers only are called in the same way.
type executor func(backend, node unsafe.Pointer, inputs []unsafe.Pointer, owned []bool) ([]unsafe.Pointer, error)

// executors is the backend's table, by type of operation.
//
//go:linkname executors github.com/gomlx/compute/internal/gobackend.MultiOutputsNodeExecutors
var executors [compute.OpTypeLast]executor

// executeCall is the backend's own function for calls, and the name that it must have for the table to be what we think.
var executeCall executor

const executeCallName = "github.com/gomlx/compute/internal/gobackend/ops.execCall"

// init replaces the function before any graph runs. The backend has filled its table by then, because this package imports it.
func init() {
	f := executors[compute.OpTypeCall]
	if f == nil || runtime.FuncForPC(reflect.ValueOf(f).Pointer()).Name() != executeCallName {
		return // tryNatives says so
	}
	executeCall, executors[compute.OpTypeCall] = f, executeNative
}

// layout holds facts about the backend's types.
type layout struct {
	backend, buffer reflect.Type // what *Backend and *Buffer point to
	data            uintptr      // offset of a node's Data
}

// known is set by [tryNatives].
var known atomic.Pointer[layout]

// executeNative executes a call. It makes the outputs in the backend's memory; the inputs stay the caller's.
func executeNative(backend, node unsafe.Pointer, inputs []unsafe.Pointer, owned []bool) ([]unsafe.Pointer, error) {
	l := known.Load()
	if l == nil {
		return executeCall(backend, node, inputs, owned)
	}
	n, ok := (*(*any)(unsafe.Add(node, l.data))).(*Native)
	if !ok {
		return executeCall(backend, node, inputs, owned)
	}
	b := reflect.NewAt(l.backend, backend)
	tensor := func(buffer unsafe.Pointer) (Tensor, error) {
		c, ok := reflect.NewAt(l.buffer, buffer).Interface().(compute.Buffer)
		if !ok {
			return Tensor{}, errors.New("a buffer of the Go backend is no compute.Buffer")
		}
		shape, err := c.Shape()
		if err != nil {
			return Tensor{}, err
		}
		flat, err := c.Data()
		if short, ok := flat.([]bfloat16.BFloat16); ok { // the same memory
			flat = unsafe.Slice((*uint16)(unsafe.SliceData(short)), len(short))
		}
		return Tensor{shape, flat}, err
	}
	in, out, results := make([]Tensor, len(inputs)), make([]Tensor, len(n.Outputs)), make([]unsafe.Pointer, len(n.Outputs))
	var err error
	for i, input := range inputs {
		if in[i], err = tensor(input); err != nil {
			return nil, err
		}
	}
	get := b.MethodByName("GetBuffer")
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
	return results, runNative(n, in, out, b.Elem().FieldByName("Workers").Interface().(pool))
}

// setNative makes the call of which output is a result execute n.
func setNative(output *graph.Node, n *Native) error {
	node, err := callNode(output)
	if err == nil {
		node.FieldByName("Data").Set(reflect.ValueOf(n))
	}
	return err
}

// callNode is the backend's node of a call, a struct with a field Data. The node of a result has it as its only input.
func callNode(output *graph.Node) (node reflect.Value, err error) {
	ops, err := hiddenField(output, "outputOps", reflect.Slice)
	if err != nil {
		return node, err
	}
	if ops.Len() != 1 || ops.Index(0).Elem().Kind() != reflect.Pointer {
		return node, fmt.Errorf("the result of a call does not have one node of the Go backend but %v", ops)
	}
	result := ops.Index(0).Elem()
	inputs := result.Elem().FieldByName("Inputs")
	if !inputs.IsValid() || inputs.Kind() != reflect.Slice || inputs.Len() != 1 || inputs.Index(0).Type() != result.Type() {
		return node, fmt.Errorf("the result of a call, a %s, does not have the call as its only input", result.Type())
	}
	node = inputs.Index(0).Elem()
	if data := node.FieldByName("Data"); !data.IsValid() || data.Type() != reflect.TypeFor[any]() {
		return node, fmt.Errorf("%s has no field Data", node.Type())
	}
	return node, nil
}

// nativesLack says why there are no natives; nil if there are.
var nativesLack = sync.OnceValue(func() error {
	if err := catch(tryNatives); err != nil {
		known.Store(nil)
		return fmt.Errorf("this build relies on hidden parts of github.com/gomlx/compute that its version of it does not have: %w", err)
	}
	return nil
})

// tryNatives finds out the facts that this file needs, and then whether a native gets its inputs and delivers its outputs.
func tryNatives() error {
	if executeCall == nil {
		return fmt.Errorf("the executor of calls is not %s", executeCallName)
	}
	b, err := gobackend.New("")
	if err != nil {
		return err
	}
	defer b.Finalize()
	get := reflect.ValueOf(b).MethodByName("GetBuffer")
	if !get.IsValid() {
		return fmt.Errorf("%T has no method GetBuffer", b)
	}
	t := get.Type()
	if t.NumIn() != 1 || t.In(0) != reflect.TypeFor[shapes.Shape]() || t.NumOut() != 2 || t.Out(0).Kind() != reflect.Pointer || t.Out(1) != reflect.TypeFor[error]() {
		return fmt.Errorf("GetBuffer of %T is a %s", b, t)
	}
	if !t.Out(0).Implements(reflect.TypeFor[compute.Buffer]()) {
		return fmt.Errorf("%s is no compute.Buffer", t.Out(0))
	}
	workers := reflect.Indirect(reflect.ValueOf(b)).FieldByName("Workers")
	if !workers.IsValid() || !workers.Type().Implements(reflect.TypeFor[pool]()) {
		return fmt.Errorf("%T has no pool of workers that starts tasks", b)
	}

	trial := Native{Name: "trial", Outputs: []shapes.Shape{shapes.Make(dtypes.Float32, 3), shapes.Make(dtypes.Int32, 2)}}
	trial.Run = func(in, out []Tensor, parallel Parallel) error {
		a, b := in[0].Flat.([]float32), in[1].Flat.([]int32)
		sums := out[0].Flat.([]float32)
		parallel(len(a), func(i int) { sums[i] = a[i] + float32(b[i]) })
		copy(out[1].Flat.([]int32), b[1:])
		return nil
	}
	g := graph.NewGraph(b, "trial of natives")
	defer g.Finalize()
	x, y := shapes.Make(dtypes.Float32, 3), shapes.Make(dtypes.Int32, 3)
	outputs := trial.call(g, []*graph.Node{graph.Parameter(g, "x", x), graph.Parameter(g, "y", y)})
	node, err := callNode(outputs[0])
	if err != nil {
		return err
	}
	data, _ := node.Type().FieldByName("Data")
	known.Store(&layout{reflect.TypeOf(b).Elem(), t.Out(0).Elem(), data.Offset}) // from here on natives are executed
	if err := g.Compile(outputs...); err != nil {
		return err
	}
	a, errA := b.BufferFromFlatData(0, []float32{1, 2, 3}, x)
	c, errC := b.BufferFromFlatData(0, []int32{10, 20, 30}, y)
	if err := errors.Join(errA, errC); err != nil {
		return err
	}
	out, err := g.Executable().Execute([]compute.Buffer{a, c}, nil, 0)
	if err != nil {
		return err
	}
	sums, err := out[0].Data()
	if err != nil {
		return err
	}
	last, err := out[1].Data()
	if err != nil {
		return err
	}
	if s, ok := sums.([]float32); !ok || !slices.Equal(s, []float32{11, 22, 33}) {
		return fmt.Errorf("a native's sums are %v", sums)
	}
	if l, ok := last.([]int32); !ok || !slices.Equal(l, []int32{20, 30}) {
		return fmt.Errorf("a native's second output is %v", last)
	}
	return nil
}
