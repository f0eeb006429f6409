package plugin

import (
	"fmt"
	"sync"
	"time"
)

// mostWork is the processor time, as a multiple of the time limit, that a plugin may use in a call.
const mostWork = 30

// ticks is how often progress is looked for in the time limit.
const ticks = 4

// unwatched is how long after its start a call is looked at for the first time. Most calls have
// ended by then, and reading the processor times of all processes would take longer than they do.
const unwatched = 100 * time.Millisecond

// watch calls giveUp, with the reason, when the plugin has made no progress for the time limit: it
// has printed nothing and used less than a hundredth of that time on a processor. So a plugin that
// a busy machine slows down is not stopped before [mostWork]. If processor times are unknown,
// only output counts. stop ends the watch.
func (l *launcher) watch(limit time.Duration, giveUp func(reason string)) (stop func()) {
	done := make(chan struct{})
	go func() {
		select {
		case <-done:
			return
		case <-time.After(min(limit/ticks, unwatched)):
		}
		ticker := time.NewTicker(max(limit/ticks, time.Millisecond))
		defer ticker.Stop()
		first, printed := l.progress()
		used := first
		for idle := 1; ; idle++ { // ticks, of which a host that stands still gets few
			select {
			case <-done:
				return
			case <-ticker.C:
			}
			work, lines := l.progress()
			select {
			case <-done: // in the meantime
				return
			default:
			}
			switch {
			case work-first > mostWork*limit:
				giveUp(fmt.Sprintf("%v of processor time", mostWork*limit))
				return
			case work-used >= limit/100 && work > used, lines > printed:
				used, printed, idle = work, lines, 0
			case idle >= ticks:
				giveUp(limit.String())
				return
			}
		}
	}()
	return sync.OnceFunc(func() { close(done) })
}

// progress returns the processor time that the plugin has used, and how many lines it has printed.
func (l *launcher) progress() (work time.Duration, lines int64) {
	if p, _ := l.current(); p != nil {
		return processorTime(p.pid()), p.output.printed.Load()
	}
	return 0, 0
}
