package cage

// Visits returns the number of visits.
func (l Lengths) Visits() int {
	visits, _ := l.sums()
	return visits
}

// Window returns the number of samples in a full window.
func (t *Tracker) Window() int { return t.window }

// DefaultSchedule returns a schedule of a kind for a run of total steps with the given peak rate.
// It warms up over a tenth of the steps (rounded down), starts at a hundredth of the peak, and ends
// at a tenth of it (WSD: at 0, linearly over the last tenth).
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
