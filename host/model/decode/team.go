package decode

import (
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/cage-qat/cage/internal/linalg"
)

// A team is a group of goroutines that compute a step together. The helpers spin between the
// products of a step, each of which takes less time than waking up.
type team struct {
	now     atomic.Pointer[work] // nil: the step is complete
	helpers sync.WaitGroup
}

// work is a computation in parts.
type work struct {
	count, length  int
	do             func(from, to int)
	taken, already atomic.Int64 // parts that are claimed or done; parts that are done
}

// newTeam starts a team, which must be stopped by dismiss.
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

// each calls do on runs of at most length parts, which cover all count parts.
func (t *team) each(count, length int, do func(from, to int)) {
	w := &work{count: count, length: length, do: do}
	t.now.Store(w)
	w.share()
	for int(w.already.Load()) < count { // a helper is working on its last run
		runtime.Gosched()
	}
}

// share claims and does runs until none is left.
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

// times sets columns [from, to) of y to those of x·wᵀ.
func (m matrix) times(y, x linalg.MatrixOf[float32], from, to int) {
	y.Data, y.Cols = y.Data[from:], to-from
	if m.halves.Data != nil {
		linalg.FewTimesHalves(y, x, m.halves.Part(from, to))
		return
	}
	linalg.FewTimes(y, x, m.full.Part(from, to))
}

// rowsAtOnce returns the number of rows that one goroutine claims at a time: enough to read memory
// at full speed, and few enough that all finish at the same time.
func (m matrix) rowsAtOnce() int {
	const elements = 1 << 14
	return max(1, elements/max(1, m.full.Cols)/8) * 8
}
