package engine

import (
	"fmt"
	"reflect"

	"github.com/gomlx/compute"
)

// Watch has f called after each run of an executable, until the returned function is called. One function watches a device at
// a time.
func (d *Device) Watch(f func(*Executable)) (stop func()) {
	d.watch.Store(&f)
	return func() { d.watch.Store(nil) }
}

// DotOperations returns how many multiplications and additions an executable of the CPU device does in each run for products of
// matrices that the library computes: those of natives do not count, and those inside loops neither, which this package
// unrolls.
//
// They are the sizes that the Go backend keeps with its nodes, found by the names of fields of github.com/gomlx/compute v0.1.14:
// the graph of GoMLX has nodes that nothing computes, as they are equal to others.
func (e *Executable) DotOperations() (sum float64, err error) {
	r, ok := e.graph.Backend().(*recordingBackend)
	if !ok || isXLA(r.builder) {
		return 0, fmt.Errorf("step %s: only the CPU device counts operations", e.name)
	}
	err = catch(func() error {
		seen := map[any]bool{}
		var walk func(node reflect.Value)
		walk = func(node reflect.Value) {
			if seen[node.Interface()] {
				return
			}
			seen[node.Interface()] = true
			node = node.Elem()
			if node.FieldByName("OpType").Interface() == compute.OpTypeDotGeneral {
				sizes, product := reflect.Indirect(node.FieldByName("Data").Elem()), 2.0
				for _, name := range []string{"BatchSize", "LHSCrossSize", "RHSCrossSize", "ContractingSize"} {
					product *= float64(sizes.FieldByName(name).Int())
				}
				sum += product
			}
			inputs := node.FieldByName("Inputs")
			for i := range inputs.Len() {
				walk(inputs.Index(i))
			}
		}
		outputs := reflect.Indirect(reflect.ValueOf(r.builder)).FieldByName("MainFn").Elem().FieldByName("Outputs")
		for i := range outputs.Len() {
			walk(outputs.Index(i))
		}
		return nil
	})
	if err != nil {
		return 0, fmt.Errorf("step %s: this build relies on hidden parts of github.com/gomlx/compute that its version of it does not have: %w", e.name, err)
	}
	return sum, nil
}
