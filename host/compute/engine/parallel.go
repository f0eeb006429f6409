package engine

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cage-qat/cage/host/compute/loops"
)

// Parallel calls f(i) for i from 0 to n−1, on the CPU device concurrently on its goroutines, on
// other devices one after the other. It returns when all calls have returned. It starts the calls
// in order, so that a call may wait for earlier ones. If a call panics, so does Parallel.
func (d *Device) Parallel(n int, f func(i int)) {
	if d.workers == nil {
		loops.InOrder(n, f)
		return
	}
	d.workers.parallel(d.Workers(), n, f)
}

// workers are the goroutines of a device. Waking a goroutine's thread takes as long as computing a
// small product (60 µs were measured), and instructions of a plan follow each other within
// microseconds. So a goroutine that has helped with one call spins for a while, to be ready for the
// next. If the number of goroutines is limited, none spins, because others need its place.
type workers struct {
	limit   int          // of goroutines; 0 means that there is no limit
	running atomic.Int32 // goroutines
	idle    atomic.Int32 // goroutines that spin and have no task in the channel
	task    chan func()
}

func newWorkers(limit int) *workers { return &workers{limit: limit, task: make(chan func(), 64)} }

// start runs a task on a goroutine, unless that exceeds the limit.
func (w *workers) start(task func()) bool {
	if n := w.running.Add(1); w.limit > 0 && int(n) > w.limit {
		w.running.Add(-1)
		return false
	}
	go func() {
		defer w.running.Add(-1)
		task()
	}()
	return true
}

// spinTime is how long a goroutine spins before it gives up waiting for another task.
const spinTime = 100 * time.Microsecond

// parallel is [Device.Parallel] with at most limit goroutines. The caller's goroutine also works,
// so that all calls are made even if the pool is exhausted.
func (w *workers) parallel(limit, n int, f func(i int)) {
	if n == 1 {
		f(0)
		return
	}
	var next atomic.Int64
	var failed atomic.Pointer[any] // the first panic
	work := func() {
		loops.ClearUpper() // what ran on this thread before may have left them in use
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
	var helping atomic.Int32
	for range min(n, limit) - 1 {
		running.Add(1)
		helping.Add(1)
		help := func() { defer running.Done(); defer helping.Add(-1); work() }
		if w.claimIdle() {
			w.task <- help
		} else if !w.start(func() { help(); w.spin() }) {
			running.Done()
			helping.Add(-1)
			break
		}
	}
	work()
	if w.limit == 0 { // the others end within microseconds
		for until := time.Now().Add(spinTime); helping.Load() > 0 && time.Now().Before(until); {
			runtime.Gosched()
		}
	}
	running.Wait()
	if r := failed.Load(); r != nil {
		panic(*r)
	}
}

// claimIdle claims a spinning goroutine and reports whether there was one.
func (w *workers) claimIdle() bool {
	for n := w.idle.Load(); n > 0; n = w.idle.Load() {
		if w.idle.CompareAndSwap(n, n-1) {
			return true
		}
	}
	return false
}

// spin waits for tasks for spinTime and executes them.
func (w *workers) spin() {
	if w.limit > 0 {
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
