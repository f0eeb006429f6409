package engine

import (
	"runtime"
	"sync/atomic"
	"time"
)

// Waking a goroutine's thread takes as long as a small product on it would (60 µs were measured), and natives follow each other
// within microseconds. So a goroutine that has helped with one stays awake for a while, and helps with the next if that
// comes. Where a device has a limited number of goroutines, none waits: it would keep the place of one that has something to do.

// lingering is how long a goroutine waits for more work.
const lingering = 100 * time.Microsecond

// helpers are the goroutines that wait, of all devices; there is no place for more.
var helpers [32]helper

// A helper is a place for a goroutine that waits.
type helper struct {
	state atomic.Int32
	of    pool // to which the goroutine belongs
	work  func()
}

// The states of a helper's place.
const (
	helperAway = iota
	helperHeld // one goroutine changes the place, and all others leave it alone
	helperWaits
	helperCalled
)

// callHelper has a waiting goroutine of the pool do the work. ok is false if there is none.
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

// linger waits for work for a while, and does what comes.
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
			runtime.Gosched() // whoever has something to do goes first
		}
	}
}
