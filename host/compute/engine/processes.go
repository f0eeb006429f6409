package engine

import (
	"time"
)

// Processes are several processes, of which each has some of the replicas of one device. All of them compile the same executables
// and run them in the same order. Package host/train/processes has them.
type Processes interface {
	// Rank is the number of this process, from 0 on, of Size. It has the replicas from Rank·Count/Size on.
	Rank() int
	Size() int
	// Local is its number among those on its machine, -1 if that is not known.
	Local() int
	// Put sets the value of a key, and Get returns it. Get waits for it that long.
	Put(key string, value []byte) error
	Get(key string, wait time.Duration) (value []byte, found bool, err error)
	// Agree gives the others a number, and returns those of all, by rank.
	Agree(name string, value int64) ([]int64, error)
	// Gone is closed when one of them is gone, and Err says which.
	Gone() <-chan struct{}
	Err() error
}

// Vote is what [Processes.Agree] gives the others for a yes or a no: 1 or 0.
func Vote(yes bool) int64 {
	if yes {
		return 1
	}
	return 0
}

// A LostError reports that a step cannot end, because another process takes no part in it any more.
type LostError struct {
	Err   error // which process, and why
	Cause error // what the device said; nil: it has not answered
}

// Error implements the error interface.
func (e *LostError) Error() string { return e.Err.Error() }

// Unwrap returns what is known.
func (e *LostError) Unwrap() []error {
	if e.Cause == nil {
		return []error{e.Err}
	}
	return []error{e.Err, e.Cause}
}

// verdict is how long a failed execution waits for word of a lost process: the device may notice the loss first.
const verdict = 5 * time.Second

// lost reports whether an execution failed because a process is gone.
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
	d.hangs.Store(true) // what waits for the other process cannot be freed
	return &LostError{Err: p.Err(), Cause: cause}
}

// mine returns the replicas of this process: the first, and how many. Without others it has all.
func (d *Device) mine() (first, n int) {
	p := d.options.Processes
	if p == nil {
		return 0, d.Count()
	}
	n = d.Count() / p.Size()
	return p.Rank() * n, n
}
