//go:build cuda

package engine

import (
	"fmt"
	"reflect"
)

// hidden returns the named field of the struct that ptr points to; it can be set even if
// unexported. The files cuda*.go so access what go-xla v0.4.13 does not export. If an upgrade
// removes one of these fields, TestHidden fails, and so does [Open]: the code panics, and [catch]
// returns the panic as an error. docs/upstream describes the changes to go-xla that would make this
// unnecessary.
func hidden(ptr any, name string) reflect.Value {
	field := reflect.Indirect(reflect.ValueOf(ptr)).FieldByName(name)
	if !field.IsValid() {
		panic(fmt.Errorf("this build needs the field %s of %T, which its version of go-xla does not have",
			name, ptr))
	}
	return reflect.NewAt(field.Type(), field.Addr().UnsafePointer()).Elem()
}
