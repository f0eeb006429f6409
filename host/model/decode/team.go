package decode

import (
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/cage-qat/cage/internal/linalg"
)

// A team is goroutines that compute a step together. The helpers do not sleep between the products
// of a step, of which each takes less time than waking up.
type team struct {
	now     atomic.Pointer[work] // nil: the step is over
	helpers sync.WaitGroup
}

// work is something in parts.
type work struct {
	count, length  int
	do             func(from, to int)
	taken, already atomic.Int64 // parts that someone does, or has done; parts that are done
}

// newTeam starts a team, which must be dismissed.
func newTeam(count int) *team {
	t := &team{}
	t.now.Store(&work{})
	for range count - 1 {
		t.helpers.Go(func() {
			for w := t.now.Load(); w != nil; w = t.now.Load() {
				w.share()
				runtime.Gosched()
			}
		})
	}
	return t
}

func (t *team) dismiss() {
	t.now.Store(nil)
	t.helpers.Wait()
}

// each calls do for all of count parts, in runs of at most the given length.
func (t *team) each(count, length int, do func(from, to int)) {
	w := &work{count: count, length: length, do: do}
	t.now.Store(w)
	w.share()
	for int(w.already.Load()) < count { // a helper is at its last run
		runtime.Gosched()
	}
}

// share does runs that nobody else does until there are none left.
func (w *work) share() {
	for {
		to := int(w.taken.Add(int64(w.length)))
		from := to - w.length
		if from >= w.count {
			return
		}
		to = min(to, w.count)
		w.do(from, to)
		w.already.Add(int64(to - from))
	}
}

// times sets columns from to before to of y to those of x·wᵀ.
func (m matrix) times(y, x linalg.MatrixOf[float32], from, to int) {
	y.Data, y.Cols = y.Data[from:], to-from
	if m.halves.Data != nil {
		linalg.FewTimesHalves(y, x, m.halves.Part(from, to))
		return
	}
	linalg.FewTimes(y, x, m.single.Part(from, to))
}

// rowsAtOnce is how many rows one goroutine takes at once: enough to read memory at full speed, and
// so few that all end together.
func (m matrix) rowsAtOnce() int {
	const elements = 1 << 14
	return max(1, elements/max(1, m.single.Cols)/8) * 8
}

// linear returns x·wᵀ in y.
func (t *team) linear(y, x linalg.MatrixOf[float32], m matrix) {
	t.each(m.single.Rows, m.rowsAtOnce(), func(from, to int) { m.times(y, x, from, to) })
}
