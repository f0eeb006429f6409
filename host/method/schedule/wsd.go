package schedule

import "math"

// wsd warms up along a line from Peak/Div, stays at Peak, and decays to
// FinalFrac·Peak over the last D = ⌊DecayFrac·Total⌋ steps (warm-up, stable,
// decay: Hu et al. 2024, "MiniCPM"). With W = Warmup, T = Total, f = FinalFrac:
//
//	k < W:    peak·(k/W + (1 − k/W)/div)
//	k < T−D:  peak
//	else:     peak·(f + (1−f)·shape(u)),  u = (k − (T−D))/D
//
// The end is reached at k = T, one step after the run's last. Without a decay
// (D = 0) the rate stays at the peak, which makes this the warm-up followed by
// a constant rate that fine-tuning uses.
func (s Schedule) wsd(k int) float64 {
	decay := portion(s.DecayFrac, s.Total) // D
	hold := s.Total - decay
	switch {
	case k < s.Warmup:
		u := float64(k) / float64(s.Warmup)
		return s.Peak * (u + (1-u)/s.Div)
	case k < hold || decay == 0:
		return s.Peak
	case k == s.Total:
		return s.Peak * s.FinalFrac // exact, where a cosine would leave a rounding error
	}
	u := float64(k-hold) / float64(decay)
	return s.Peak * (s.FinalFrac + (1-s.FinalFrac)*s.Shape.at(u))
}

// at is the shape's height at progress u in [0, 1]: 1 at the start, 0 at the end.
func (shape Shape) at(u float64) float64 {
	switch shape {
	case Sqrt:
		return 1 - math.Sqrt(u)
	case Cosine:
		return halfCosine(u)
	}
	return 1 - u
}
