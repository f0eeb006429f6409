// Package recovered converts panics of executors to errors. A panic then ends one call and its run,
// but not the process, and the run can still save its state.
//
// [Catch] belongs in calls that execute or compile one program, on the same goroutine: a panic
// cannot be recovered elsewhere. The output of the failed call is lost.
package recovered

import (
	"fmt"
	"runtime/debug"
)

// A PanicError is a recovered panic.
type PanicError struct {
	Executor string // name of the executor that panicked
	Program  string // name of the program that it executed or compiled
	Cause    any    // the panic value
	Stack    []byte // where it happened; not part of the message
}

// Error names the executor and the program.
func (e *PanicError) Error() string {
	return fmt.Sprintf("executor %q failed at program %q, a bug in this build and not a problem of "+
		"the run's settings: %v", e.Executor, e.Program, e.Cause)
}

// Unwrap returns the cause, if it is an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Cause.(error)
	return err
}

// Catch must be deferred by a function that executes or compiles a program. It converts a panic to
// the error that the function returns, a [*PanicError].
func Catch(executor, program string, err *error) {
	if cause := recover(); cause != nil {
		*err = &PanicError{Executor: executor, Program: program, Cause: cause, Stack: debug.Stack()}
	}
}
