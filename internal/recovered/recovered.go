// Package recovered converts panics of executors to errors. A panic then ends the training run but
// not the process, so that the run can save its state.
//
// [Catch] must be deferred on the goroutine that executes or compiles the program, because a panic
// cannot be recovered on another one. The output of the failed call is lost.
package recovered

import "fmt"

// A PanicError is the error for a recovered panic.
type PanicError struct {
	Executor string // name of the executor that panicked
	Program  string // name of the program that it executed or compiled
	Cause    any    // the panic value
}

// Error implements error. The message names the executor and the program.
func (e *PanicError) Error() string {
	return fmt.Sprintf("executor %q failed on program %q; this is a bug in this build, not a problem "+
		"of the run's settings: %v", e.Executor, e.Program, e.Cause)
}

// Unwrap returns the panic value if it is an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Cause.(error)
	return err
}

// Catch must be deferred by a function that executes or compiles a program. If the function panics,
// Catch recovers and sets *err to a [*PanicError].
func Catch(executor, program string, err *error) {
	if cause := recover(); cause != nil {
		*err = &PanicError{Executor: executor, Program: program, Cause: cause}
	}
}
