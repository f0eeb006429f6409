package engine

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// rests waits until no goroutine of the pools runs, and checks that none is idle and no call left.
func rests(t *testing.T, pools ...*workers) {
	t.Helper()
	deadline := time.Now().Add(10 * time.Second)
	for _, w := range pools {
		for w.running.Load() > 0 {
			if time.Now().After(deadline) {
				t.Fatal("goroutines go on waiting")
			}
			runtime.Gosched()
		}
	}
	for _, w := range pools {
		if w.idle.Load() != 0 || len(w.task) > 0 {
			t.Errorf("%d goroutines are idle, and %d calls are left", w.idle.Load(), len(w.task))
		}
	}
}

// TestHelpersServeTheirPool checks that calls from many goroutines, some of which panic, run all
// tasks, and that no goroutine waits in the end.
func TestHelpersServeTheirPool(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(4))
	pools := []*workers{newWorkers(0), newWorkers(0),
		newWorkers(3)}
	const calls, tasks = 2000, 5
	var all sync.WaitGroup
	for caller := range 6 {
		all.Go(func() {
			parallel := func(n int, f func(int)) { pools[caller%len(pools)].parallel(4, n, f) }
			for i := range calls {
				var done atomic.Int64
				panics := i%97 == 0
				func() {
					defer func() {
						if r := recover(); (r != nil) != panics {
							t.Errorf("call %d panics with %v", i, r)
						}
					}()
					parallel(tasks, func(task int) {
						if done.Add(1); panics && task == 3 {
							panic("as asked")
						}
					})
				}()
				if n := done.Load(); !panics && n != tasks {
					t.Errorf("call %d has done %d tasks", i, n)
				}
			}
		})
	}
	all.Wait()
	rests(t, pools...)
}

// TestHelpersStayAwake checks that a goroutine that has helped with a call waits for other calls of
// its own pool, except in a limited pool.
func TestHelpersStayAwake(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(2))
	own, other := newWorkers(0), newWorkers(0)
	limited := newWorkers(3)
	waits := func() bool { // polls for longer than a goroutine takes to start waiting
		own.parallel(2, 2, func(int) { time.Sleep(time.Millisecond) })
		for until := time.Now().Add(spinTime / 2); time.Now().Before(until); runtime.Gosched() {
			if other.claimIdle() {
				t.Error("a goroutine of another pool is called")
			}
			called := make(chan bool, 1)
			if own.claimIdle() {
				own.task <- func() { called <- true }
				return <-called
			}
		}
		return false
	}
	for try := 0; !waits(); try++ {
		if try == 1000 {
			t.Fatal("no goroutine stays awake")
		}
	}
	rests(t, own, other)
	for range 100 {
		limited.parallel(2, 2, func(int) {})
		if limited.claimIdle() {
			t.Fatal("a goroutine of a limited pool stays awake")
		}
	}
	rests(t, limited)
}
