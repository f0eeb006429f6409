package decode

import (
	"sync"
	"sync/atomic"

	"github.com/cage-qat/cage/internal/linalg"
)

func newMatrix(data []float32, out, in int, halves bool) matrix {
	m := matrix{single: linalg.RowMajor(data, out, in)}
	if halves {
		m.halves, _ = linalg.Halve(data, out, in)
	}
	return m
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

// part is how many rows one goroutine takes at once: enough to read memory at full speed, and so few that all end together.
func (m matrix) part() int {
	const elements = 1 << 14
	return max(1, elements/max(1, m.single.Cols)/8) * 8
}

// workers are goroutines that share the parts of a step.
type workers struct{ count int }

// each calls do for all of count parts, in runs of at most the given length, on all goroutines.
func (w workers) each(count, length int, do func(from, to int)) {
	var next atomic.Int64
	work := func() {
		for {
			to := int(next.Add(int64(length)))
			if from := to - length; from < count {
				do(from, min(to, count))
				continue
			}
			return
		}
	}
	var others sync.WaitGroup
	for range min(w.count, (count+length-1)/length) - 1 {
		others.Go(work)
	}
	work()
	others.Wait()
}

// linear returns x·wᵀ in y.
func (w workers) linear(y, x linalg.MatrixOf[float32], m matrix) {
	w.each(m.single.Rows, m.part(), func(from, to int) { m.times(y, x, from, to) })
}
