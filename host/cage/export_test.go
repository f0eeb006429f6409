package cage

// Visits is their number.
func (l Lengths) Visits() int { return l.visits }

// Window is the number of samples that the measures look at once there are as many.
func (t *Tracker) Window() int { return t.window }

// DefaultSchedule is a schedule of a kind for a run of total steps with the given peak
// rate: warm-up over a tenth of the steps (rounded down), a start at a hundredth of the
// peak, and an end at a tenth of it (for WSD: at 0, linearly over the last tenth).
func DefaultSchedule(kind ScheduleKind, peak float64, total int) Schedule {
	c := Schedule{
		Kind: kind, Peak: peak, Total: total, Warmup: total / 10,
		Div: 100, FinalDiv: 0.1, FinalFrac: 0.1, DecayFrac: 0.1, Shape: LinearDecay,
	}
	if kind == WSD {
		c.FinalFrac = 0
	}
	return c
}
