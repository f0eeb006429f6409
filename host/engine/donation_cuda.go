//go:build cuda

package engine

import (
	"reflect"

	"github.com/gomlx/compute"
	"github.com/gomlx/go-xla/compute/xla"
	"github.com/gomlx/go-xla/stablehlo"
)

// lendMemory tells XLA that outputs may take the memory of inputs, before the graph is compiled, and returns for how
// many it did. Without that, and so on any other backend, a donated input is freed only after the step.
func lendMemory(builder compute.Builder, pairs map[int]int) int {
	inputs := mainInputs(builder)
	if len(pairs) == 0 || inputs == nil {
		return 0
	}
	for input, output := range pairs {
		if inputs[input].Attributes == nil {
			inputs[input].Attributes = make(map[string]any)
		}
		// The name under which XLA reads it from a program: "may alias", it copies first what a call does not donate.
		inputs[input].Attributes["tf.aliasing_output"] = int32(output)
	}
	return len(pairs)
}

// mainInputs returns the arguments of the program's main function, or nil if this is not XLA, or not as it is known:
// go-xla has no way to give them attributes but through a field that is hidden, hence the reflection.
func mainInputs(builder compute.Builder) []*stablehlo.Value {
	b, ok := builder.(*xla.Builder)
	if !ok {
		return nil
	}
	field := reflect.Indirect(reflect.ValueOf(b.Main())).FieldByName("fn")
	if !field.IsValid() || field.Type() != reflect.TypeFor[*stablehlo.Function]() || field.IsNil() {
		return nil
	}
	return (*stablehlo.Function)(field.UnsafePointer()).Inputs
}
