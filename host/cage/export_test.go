package cage

// Visits is their number.
func (l Lengths) Visits() int { return l.visits }

// Window is the number of samples that the measures look at once there are as many.
func (t *Tracker) Window() int { return t.window }
