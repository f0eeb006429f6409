package engine

import "time"

// Processes connects several processes that each have some of the replicas of one device. All of
// them compile the same executables and run them in the same order. Package host/train/processes
// implements it.
type Processes interface {
	// Rank is the index of this process among Size processes. Its first replica is Rank·Count/Size.
	Rank() int
	Size() int
	// Local is its rank among the processes on its machine, -1 if unknown.
	Local() int
	// Put sets the value of a key, and Get returns it. Get waits for the key up to a timeout.
	Put(key string, value []byte) error
	Get(key string, wait time.Duration) (value []byte, found bool, err error)
	// Agree all-gathers a number: it returns the values of all processes, by rank.
	Agree(name string, value int64) ([]int64, error)
	// Gone is closed when another process is lost, and Err then names it.
	Gone() <-chan struct{}
	Err() error
}

// Vote encodes a yes or no for [Processes.Agree], as 1 or 0.
func Vote(yes bool) int64 {
	if yes {
		return 1
	}
	return 0
}

// A LostError reports that a step cannot finish because another process was lost.
type LostError struct {
	Err   error // which process was lost, and why
	Cause error // the device's error; nil if it did not answer
}

// Error implements the error interface.
func (e *LostError) Error() string { return e.Err.Error() }

// Unwrap returns both errors.
func (e *LostError) Unwrap() []error {
	if e.Cause == nil {
		return []error{e.Err}
	}
	return []error{e.Err, e.Cause}
}

// verdict is how long a failed execution waits for the report of a lost process: the device may
// notice the loss first.
const verdict = 5 * time.Second

// lost returns a [LostError] if a process was lost, which explains the failure, else cause.
func (d *Device) lost(cause error) error {
	p := d.options.Processes
	if p == nil {
		return cause
	}
	select {
	case <-p.Gone():
	case <-time.After(verdict):
		return cause
	}
	d.hangs.Store(true) // executions that wait for the lost process cannot be freed
	return &LostError{Err: p.Err(), Cause: cause}
}

// mine returns the first replica of this process and their number; without other processes, all.
func (d *Device) mine() (first, n int) {
	p := d.options.Processes
	if p == nil {
		return 0, d.Count()
	}
	n = d.Count() / p.Size()
	return p.Rank() * n, n
}
