package engine

import (
	"time"

	"github.com/cage-qat/cage/host/compute/device"
)

// Processes connects several processes, each of which runs some replicas of the same device. All of
// them compile the same executables and run them in the same order. Package host/train/processes
// implements it.
type Processes interface {
	// Rank is the index of this process among Size processes. Its first replica is Rank·Count/Size.
	Rank() int
	Size() int
	// Local is the rank among the processes on the same machine, or -1 if unknown.
	Local() int
	// Put sets the value of a key. Get returns it and waits for the key for at most the given time.
	Put(key string, value []byte) error
	Get(key string, wait time.Duration) (value []byte, found bool, err error)
	// Agree all-gathers a value: every process calls it, and gets the values of all, by rank.
	Agree(name string, value int64) ([]int64, error)
	// Gone is closed when another process is lost; Err then names that process.
	Gone() <-chan struct{}
	Err() error
}

// Vote encodes yes or no as 1 or 0 for [Processes.Agree].
func Vote(yes bool) int64 {
	if yes {
		return 1
	}
	return 0
}

// A LostError reports that an executable cannot finish because another process has been lost.
type LostError struct {
	Err   error // which process was lost, and why
	Cause error // the device's error; nil if it did not answer
}

// Error implements the error interface.
func (e *LostError) Error() string { return e.Err.Error() }

// Unwrap returns Err and, unless it is nil, Cause.
func (e *LostError) Unwrap() []error {
	if e.Cause == nil {
		return []error{e.Err}
	}
	return []error{e.Err, e.Cause}
}

// verdict is how long a failed execution waits for news of a lost process, because the device may
// notice the loss first.
const verdict = 5 * time.Second

// lost returns a [LostError] if the loss of a process explains the failure, else cause.
func (d *Device) lost(cause error) error {
	p := d.options.Processes
	if p == nil || d.kind == device.CPU {
		return cause
	}
	select {
	case <-p.Gone():
	case <-time.After(verdict):
		return cause
	}
	d.hang() // executions that wait for the lost process cannot be freed
	return &LostError{Err: p.Err(), Cause: cause}
}

// mine returns the first replica of this process and the number of its replicas.
func (d *Device) mine() (first, n int) {
	p := d.options.Processes
	if p == nil {
		return 0, d.Count()
	}
	n = d.Count() / p.Size()
	return p.Rank() * n, n
}
