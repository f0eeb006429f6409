package engine

import (
	"errors"
	"fmt"
	"reflect"
	"strings"

	"github.com/gomlx/compute"
	"github.com/gomlx/gomlx/core/graph"
)

// This file holds what reaches into hidden parts of GoMLX and go-xla by reflection; cuda.go has the rest, which changes what
// a recorded operation is. It relies on names of fields in GoMLX v0.28.16 and go-xla v0.4.13. [checkHidden]
// looks for them when a device is opened: after an upgrade that renames one, that is an error, and not a step that is
// slower or wrong.

// Hidden maps that remember what a graph has already: its scalars, and the functions of its reductions.
var (
	graphCaches   = []string{"scalars"}
	builderCaches = []string{"cacheReductions", "cacheArgMinMax", "cacheSelections"}
)

// checkHidden looks for all that this file relies on, in a graph of its own. [setParallelism] looks for what
// it needs of the Go backend itself.
func checkHidden(backend compute.Backend) error {
	r := &recordingBackend{Backend: backend}
	g := graph.NewGraph(r, "check")
	defer g.Finalize()
	node := graph.Const(g, float32(0)) // the builder is made with the first node
	_, errInputs := hiddenField(node, inputsOfNode, reflect.Slice)
	if errInputs != nil || !isXLA(r.builder) {
		return hiddenLack(errInputs)
	}
	_, errGraph := hiddenMaps(g, graphCaches)
	_, errBuilder := hiddenMaps(r.builder, builderCaches)
	_, errMain := mainInputs(r.builder)
	_, errOutputs := mainValues(r.builder, "Outputs")
	_, _, errParent := closureParent(r.builder, g.CurrentFunc())
	return hiddenLack(errors.Join(errGraph, errBuilder, errMain, errOutputs, errParent))
}

func hiddenLack(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("this build relies on hidden fields of GoMLX and go-xla that its versions of them do not have: %w", err)
}

// inputsOfNode is the field of a graph's node with the nodes that it is computed from.
const inputsOfNode = "inputNodes"

// Descend has GoMLX, when it differentiates, take the node for one that is computed from others, too. The device reads nothing of
// them. The node must be one whose gradient is that of an alternative, which descends from all of them.
func Descend(node *graph.Node, from ...*graph.Node) {
	inputs, err := hiddenField(node, inputsOfNode, reflect.Slice)
	if err != nil {
		panic(err)
	}
	own := inputs.Slice3(0, inputs.Len(), inputs.Len()) // what is appended is nobody else's
	inputs.Set(reflect.AppendSlice(own, reflect.ValueOf(from)))
}

// isXLA recognizes builders of go-xla by name: a build without CUDA does not have the type.
func isXLA(builder compute.Builder) bool {
	return builder != nil && strings.HasSuffix(reflect.TypeOf(builder).String(), "xla.Builder")
}

// setParallelism sets the size of the Go backend's pool of workers. The backend's configuration string can say the same
// ("parallelism=-1"), but the backend then prints a line on standard output, where a command with machine-readable
// output must not print. The exported field Workers leads to the same setter; its type is internal to the backend's
// module, hence the reflection.
func setParallelism(backend compute.Backend, n int) error {
	workers := reflect.Indirect(reflect.ValueOf(backend)).FieldByName("Workers")
	if !workers.IsValid() {
		return fmt.Errorf("the Go backend %T has no pool of workers to configure", backend)
	}
	set, ok := workers.Interface().(interface{ SetMaxParallelism(int) })
	if !ok {
		return fmt.Errorf("the Go backend's pool of workers %s has no SetMaxParallelism", workers.Type())
	}
	set.SetMaxParallelism(n)
	return nil
}

// ownScope gives the function that is being built constants, reductions and closures of its own, until the returned
// function is called. GoMLX returns the same node for a scalar that a graph has already, and go-xla the same function for a
// reduction; but go-xla cannot use inside a function what was made outside it, nor the reverse. And GoMLX v0.28.16 makes
// every closure one of the main function, which go-xla takes in no other: a loop or a sort inside a loop's body would not
// be built. It panics as graph building does.
func ownScope(g *graph.Graph) (restore func()) {
	fields, err := hiddenMaps(g, graphCaches)
	var parent, function reflect.Value
	if r, ok := g.Backend().(*recordingBackend); ok && err == nil && isXLA(r.builder) {
		var more []reflect.Value
		more, err = hiddenMaps(r.builder, builderCaches)
		fields = append(fields, more...)
		if err == nil {
			parent, function, err = closureParent(r.builder, g.CurrentFunc())
		}
	}
	if err != nil {
		panic(err)
	}
	inside := make([]reflect.Value, len(fields))
	for i, field := range fields {
		inside[i] = reflect.MakeMap(field.Type())
	}
	if parent.IsValid() {
		fields, inside = append(fields, parent), append(inside, function)
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

// closureParent is the field of go-xla's builder that says which function closures belong to, its main one, and what it
// has to be for those of f.
func closureParent(builder compute.Builder, f *graph.Function) (field, function reflect.Value, err error) {
	field, err = hiddenField(builder, "mainFn", reflect.Pointer)
	if err != nil {
		return field, function, err
	}
	of, err := hiddenField(f, "backendFunc", reflect.Interface)
	if err != nil {
		return field, function, err
	}
	if of.IsNil() || of.Elem().Type() != field.Type() {
		return field, function, fmt.Errorf("a function of %T is no %s", builder, field.Type())
	}
	return field, of.Elem(), nil
}

// hiddenMaps are the named fields of a struct, which must be maps.
func hiddenMaps(of any, names []string) ([]reflect.Value, error) {
	var list []reflect.Value
	for _, name := range names {
		field, err := hiddenField(of, name, reflect.Map)
		if err != nil {
			return nil, err
		}
		list = append(list, field)
	}
	return list, nil
}

// hiddenField is the named field of the struct that of points to, which must be of a kind. It can be set.
func hiddenField(of any, name string, kind reflect.Kind) (reflect.Value, error) {
	field := reflect.Indirect(reflect.ValueOf(of)).FieldByName(name)
	if !field.IsValid() || field.Kind() != kind {
		return field, fmt.Errorf("%T has no %s %s", of, kind, name)
	}
	return reflect.NewAt(field.Type(), field.Addr().UnsafePointer()).Elem(), nil
}

// aliasDonated tells XLA, before the graph is compiled, which donated input each output may alias.
// Without it, XLA frees a donated input only after the step. The Go backend needs no such information.
func aliasDonated(builder compute.Builder, pairs map[int]int) error {
	if len(pairs) == 0 || !isXLA(builder) {
		return nil
	}
	inputs, err := mainInputs(builder)
	if err != nil {
		return err
	}
	for input, output := range pairs {
		// The name under which XLA reads it from a program: "may alias", it copies first what a call does not donate.
		setAttribute(inputs.Index(input), "tf.aliasing_output", int32(output))
	}
	return nil
}

// setAttribute sets an attribute of one of the values of [mainValues].
func setAttribute(value reflect.Value, name string, to any) {
	attributes := value.Elem().FieldByName("Attributes")
	if attributes.IsNil() {
		attributes.Set(reflect.MakeMap(attributes.Type()))
	}
	attributes.SetMapIndex(reflect.ValueOf(name), reflect.ValueOf(to))
}

// mainInputs are the arguments of the program's main function.
func mainInputs(builder compute.Builder) (inputs reflect.Value, err error) {
	return mainValues(builder, "Inputs")
}

// mainValues are the Inputs or Outputs of the program's main function, a list of pointers to values with Attributes: go-xla has
// no way to give them any but through a field that is hidden.
func mainValues(builder compute.Builder, which string) (list reflect.Value, err error) {
	function, err := mainFunction(builder)
	if err != nil {
		return list, err
	}
	list = function.FieldByName(which)
	attributes := reflect.TypeFor[map[string]any]()
	if !list.IsValid() || list.Kind() != reflect.Slice || list.Type().Elem().Kind() != reflect.Pointer {
		return list, fmt.Errorf("%s has no list of %s", function.Type(), which)
	}
	if f, ok := list.Type().Elem().Elem().FieldByName("Attributes"); !ok || f.Type != attributes {
		return list, fmt.Errorf("%s has no Attributes of type %s", list.Type().Elem(), attributes)
	}
	return list, nil
}

// mainFunction is the program's main function as go-xla has recorded it, a struct.
func mainFunction(builder compute.Builder) (function reflect.Value, err error) {
	main := builder.Main()
	field := reflect.Indirect(reflect.ValueOf(main)).FieldByName("fn")
	if !field.IsValid() || field.Kind() != reflect.Pointer || field.IsNil() {
		return function, fmt.Errorf("%T has no function fn", main)
	}
	return reflect.NewAt(field.Type().Elem(), field.UnsafePointer()).Elem(), nil
}
