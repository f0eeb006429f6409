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
func (d *Device) Parallel(n int, f func(i int)) { d.workers.parallel(d.Workers(), n, f) }

// pool starts goroutines within a device's limit. It is implemented by the Go backend's pool of
// workers.
type pool interface {
	StartIfAvailable(task func()) bool
	IsUnlimited() bool
}

// workers are the goroutines of a device. Waking a goroutine's thread takes as long as computing a
// small product (60 µs were measured), and natives follow each other within microseconds. So a
// goroutine that has helped with one call spins for a while, to help with the next. If a device's
// goroutines are limited, none spins, because it would hold a worker slot that others need.
type workers struct {
	pool pool
	idle atomic.Int32 // goroutines that spin and have no task in the channel
	task chan func()
}

func newWorkers(p pool) *workers { return &workers{pool: p, task: make(chan func(), 64)} }

// spinTime is how long a goroutine waits for another task.
const spinTime = 100 * time.Microsecond

// parallel is [Parallel] with at most most goroutines. The caller's goroutine works, too, so that
// all calls are made even if the pool is exhausted.
func (w *workers) parallel(most, n int, f func(i int)) {
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
		if w.claimIdle() {
			w.task <- help
		} else if !w.pool.StartIfAvailable(func() { help(); w.spin() }) {
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

// claimIdle claims a spinning goroutine, and reports whether there was one.
func (w *workers) claimIdle() bool {
	for n := w.idle.Load(); n > 0; n = w.idle.Load() {
		if w.idle.CompareAndSwap(n, n-1) {
			return true
		}
	}
	return false
}

// spin waits for tasks for a while, and does them.
func (w *workers) spin() {
	if !w.pool.IsUnlimited() {
		return
	}
	w.idle.Add(1)
	for until := time.Now().Add(spinTime); ; {
		select {
		case task := <-w.task:
			task()
			w.idle.Add(1)
			until = time.Now().Add(spinTime)
		default:
			if time.Now().After(until) && w.claimIdle() {
				return
			}
			runtime.Gosched() // yield to goroutines that have work
		}
	}
}
