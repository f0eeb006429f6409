package schedule

// linearWarmupCosine rises along a line that reaches Peak at step W−1, and falls
// along half a cosine to FinalFrac·Peak (cosine annealing: Loshchilov and Hutter
// 2017, "SGDR"). With W = Warmup, T = Total, f = FinalFrac:
//
//	k < W:  peak·(k+1)/W
//	else:   peak·(f + (1−f)(1 + cos πu)/2),  u = min(1, (k+1−W)/(T−W))
func (s Schedule) linearWarmupCosine(k int) float64 {
	if k < s.Warmup {
		return s.Peak * float64(k+1) / float64(s.Warmup)
	}
	u := min(1, float64(k+1-s.Warmup)/float64(max(1, s.Total-s.Warmup)))
	return s.Peak * (s.FinalFrac + (1-s.FinalFrac)*halfCosine(u))
}
