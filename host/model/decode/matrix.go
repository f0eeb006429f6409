package decode

import "github.com/cage-qat/cage/internal/linalg"

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

// linear returns x·wᵀ in y.
func (t *team) linear(y, x linalg.MatrixOf[float32], m matrix) {
	t.each(m.single.Rows, m.part(), func(from, to int) { m.times(y, x, from, to) })
}
