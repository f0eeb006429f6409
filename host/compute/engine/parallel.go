package engine

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// Parallel calls f with 0 to n−1, several at once where the device has goroutines for them, and
// returns when all calls have returned. It starts the calls in order, so that a call may wait for
// earlier ones. If a call panics, so does Parallel.
type Parallel func(n int, f func(i int))

// Parallel implements [Parallel] on the goroutines of the CPU device.
func (d *Device) Parallel(n int, f func(i int)) { parallelOn(d.workers, d.Workers(), n, f) }

// pool starts goroutines within a device's limit. It is implemented by the Go backend's pool of
// workers.
type pool interface {
	StartIfAvailable(task func()) bool
	IsUnlimited() bool
}

// parallelOn is [Parallel] on a pool of workers, with at most most goroutines. The caller's
// goroutine works, too, so that all calls are made even if the pool is exhausted.
func parallelOn(workers pool, most, n int, f func(i int)) {
	if n == 1 {
		f(0)
		return
	}
	var next atomic.Int64
	var failed atomic.Pointer[any] // the first panic
	work := func() {
		defer func() {
			if r := recover(); r != nil {
				failed.CompareAndSwap(nil, &r)
				next.Store(int64(n))
			}
		}()
		for i := next.Add(1) - 1; i < int64(n); i = next.Add(1) - 1 {
			f(int(i))
		}
	}
	var running sync.WaitGroup
	for range min(n, most) - 1 {
		running.Add(1)
		help := func() { defer running.Done(); work() }
		if !callHelper(workers, help) && !workers.StartIfAvailable(func() { help(); linger(workers) }) {
			running.Done()
			break
		}
	}
	work()
	running.Wait()
	if r := failed.Load(); r != nil {
		panic(*r)
	}
}

// Waking a goroutine's thread takes as long as computing a small product (60 µs were measured),
// and natives follow each other within microseconds. So a goroutine that has helped with one
// native spins for a while, to help with the next. If a device's goroutines are limited, none
// spins, because it would hold a worker slot that others need.

// lingering is how long a goroutine waits for more work.
const lingering = 100 * time.Microsecond

// helpers are the slots for waiting goroutines of all devices.
var helpers [32]helper

// A helper is a slot for a waiting goroutine.
type helper struct {
	state atomic.Int32
	of    pool // to which the goroutine belongs
	work  func()
}

// The states of a helper.
const (
	helperAway = iota
	helperHeld // locked by the goroutine that changes it
	helperWaits
	helperCalled
)

// callHelper passes work to a waiting goroutine of the pool. ok is false if there is none.
func callHelper(of pool, work func()) (ok bool) {
	for i := range helpers {
		h := &helpers[i]
		if h.state.Load() != helperWaits || !h.state.CompareAndSwap(helperWaits, helperHeld) {
			continue
		}
		if h.of != of {
			h.state.Store(helperWaits)
			continue
		}
		h.work = work
		h.state.Store(helperCalled)
		return true
	}
	return false
}

// linger waits for work for a while, and does it.
func linger(of pool) {
	if !of.IsUnlimited() {
		return
	}
	for i := range helpers {
		h := &helpers[i]
		if h.state.Load() != helperAway || !h.state.CompareAndSwap(helperAway, helperHeld) {
			continue
		}
		h.of = of
		h.state.Store(helperWaits)
		for until := time.Now().Add(lingering); ; {
			if h.state.Load() == helperCalled {
				work := h.work
				h.work = nil
				work()
				h.state.Store(helperWaits)
				until = time.Now().Add(lingering)
			}
			if time.Now().After(until) && h.state.CompareAndSwap(helperWaits, helperHeld) {
				h.of = nil
				h.state.Store(helperAway)
				return
			}
			runtime.Gosched() // yield to goroutines that have work
		}
	}
}
