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

// helpers maps each pool to the *queue of its spinning goroutines.
var helpers sync.Map

// A queue passes work to spinning goroutines.
type queue struct {
	idle atomic.Int32 // goroutines that spin and have no work in the channel
	work chan func()
}

func helpersOf(of pool) *queue {
	q, ok := helpers.Load(of)
	if !ok {
		q, _ = helpers.LoadOrStore(of, &queue{work: make(chan func(), 64)})
	}
	return q.(*queue)
}

// take claims an idle goroutine, if there is one.
func (q *queue) take() bool {
	for n := q.idle.Load(); n > 0; n = q.idle.Load() {
		if q.idle.CompareAndSwap(n, n-1) {
			return true
		}
	}
	return false
}

// callHelper passes work to a spinning goroutine of the pool. ok is false if there is none.
func callHelper(of pool, work func()) (ok bool) {
	q := helpersOf(of)
	if !q.take() {
		return false
	}
	q.work <- work
	return true
}

// linger waits for work for a while, and does it.
func linger(of pool) {
	if !of.IsUnlimited() {
		return
	}
	q := helpersOf(of)
	q.idle.Add(1)
	for until := time.Now().Add(lingering); ; {
		select {
		case work := <-q.work:
			work()
			q.idle.Add(1)
			until = time.Now().Add(lingering)
		default:
			if time.Now().After(until) && q.take() {
				return
			}
			runtime.Gosched() // yield to goroutines that have work
		}
	}
}
