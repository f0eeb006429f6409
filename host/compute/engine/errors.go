package engine

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/cage-qat/cage/host/compute/device"
)

// ErrBufferGone is the error for using a buffer that was finalized, or donated to an executable.
var ErrBufferGone = errors.New("the buffer is gone: it was finalized or donated to an executable")

// A CountError reports that more replicas were requested than the device can hold.
type CountError struct {
	Kind       string // of the device
	Want, Have int    // replicas
}

// Error implements the error interface.
func (e *CountError) Error() string {
	if e.Kind == device.CPU {
		return fmt.Sprintf("device %q has one replica, but %d were requested: "+
			"several replicas need device %q", e.Kind, e.Want, device.CUDA)
	}
	return fmt.Sprintf("device %q: %d replicas were requested, but it has %d GPU(s) that "+
		"CUDA_VISIBLE_DEVICES lets it see; `nvidia-smi -L` lists those that answer",
		e.Kind, e.Want, e.Have)
}

// A HangError reports that a device did not answer.
type HangError struct {
	Limit time.Duration // how long the device was waited for
	Count int           // GPUs
}

// Error implements the error interface.
func (e *HangError) Error() string {
	text := fmt.Sprintf("the device has not answered for %v: `nvidia-smi` and `dmesg` say whether "+
		"the GPU has failed, and device.timeout_minutes sets how long to wait", e.Limit)
	if e.Count > 1 {
		text += "; GPUs that wait for each other may need NCCL_P2P_DISABLE=1, " +
			"and NCCL_DEBUG=INFO says what they do"
	}
	return text
}

// Phase is the stage at which an executable failed.
type Phase string

// The phases of an executable.
const (
	Building  Phase = "building the graph" // the call of the function that builds the graph
	Compiling Phase = "compiling"          // the translation of the graph for the device
	Running   Phase = "running"            // the execution
)

// An ExecutableError reports the failure of one executable. Its message gives the executable's
// name, the phase and the cause.
type ExecutableError struct {
	Name  string // given to Compile
	Phase Phase
	Err   error // the cause
}

// Error implements the error interface.
func (e *ExecutableError) Error() string {
	text := fmt.Sprintf("executable %q: %s: %v", e.Name, e.Phase, e.Err)
	if _, lost := errors.AsType[*LostError](e.Err); lost {
		return text // the other process reports the remedy
	}
	return advised(text)
}

// Unwrap returns the cause.
func (e *ExecutableError) Unwrap() error { return e.Err }

// A MemoryError reports that a device ran out of memory.
type MemoryError struct{ error }

// Unwrap returns the device's own error.
func (e *MemoryError) Unwrap() error { return e.error }

// exhausted matches PJRT's out-of-memory messages; error code 8 is RESOURCE_EXHAUSTED.
var exhausted = regexp.MustCompile(`PJRT error \(code=8\)|(?i:out.of.memory)`)

// asMemoryError converts an error that reports exhausted device memory to a MemoryError. go-xla has
// no typed errors, so it matches the text of PJRT's message. The error of a kernel that exceeds a
// multiprocessor's shared memory has the same code but is not converted.
func asMemoryError(err error) error {
	if err == nil || !exhausted.MatchString(err.Error()) ||
		strings.Contains(strings.ToLower(err.Error()), "shared memory") {
		return err
	}
	return &MemoryError{err}
}

// catch calls f and turns a panic into an error. Errors that report exhausted device memory become
// a [MemoryError].
func catch(f func() error) (err error) {
	defer func() {
		switch r := recover().(type) {
		case nil:
			err = asMemoryError(err)
		case error:
			err = asMemoryError(r)
		default:
			err = fmt.Errorf("%v", r)
		}
	}()
	return f()
}
