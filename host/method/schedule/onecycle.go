package schedule

import "math"

// oneCycleCos rises from Peak/Div to Peak and falls to Peak/Div/FinalDiv, both
// along half a cosine: the one-cycle schedule (Smith and Topin 2018, "Super-
// Convergence") with the arguments that QuEST's training code uses (Panferov et
// al. 2025). With W = Warmup, T = Total and A(a, b, u) = b + (a−b)(1 + cos πu)/2:
//
//	k ≤ W−1:  A(start, peak, k/(W−1))
//	else:     A(peak, end, (k−W+1)/(T−W))
//
// The peak is reached at step W−1 and the end at step T−1; Rate(T) follows the
// cosine one step past its end, where it turns up again by a little. A warm-up
// of one step is at the peak at once, and where the warm-up takes the whole run
// there is no fall: Rate(T) is the peak.
func (s Schedule) oneCycleCos(k int) float64 {
	start := s.Peak / s.Div
	end := start / s.FinalDiv
	last := s.Warmup - 1
	switch {
	case k <= last && last > 0:
		return anneal(start, s.Peak, float64(k)/float64(last))
	case k <= last, s.Warmup == s.Total:
		return s.Peak
	}
	return anneal(s.Peak, end, float64(k-last)/float64(s.Total-s.Warmup))
}

// anneal goes from a to b along half a cosine while u goes from 0 to 1.
func anneal(a, b, u float64) float64 {
	return b + (a-b)/2*(1+math.Cos(math.Pi*u))
}
