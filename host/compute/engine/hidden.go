package engine

import (
	"fmt"
	"reflect"
	"strings"

	"github.com/gomlx/compute"
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
