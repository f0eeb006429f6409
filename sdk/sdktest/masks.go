package sdktest

// checkGradientSize takes the trace of the Jacobian of the surrogate by x. With the
// masked straight-through gradient dx = Hᵀ(M ⊙ H·dx̂) it is the number of entries
// that the mask passes, whatever the rotation H.
func (q *quantizerRun) checkGradientSize(t *trial) {
	if q.traits.AnyGradient {
		t.skipf("another gradient is claimed")
		return
	}
	for _, v := range q.space.core() {
		for _, d := range []int{33, 64} {
			for _, s := range q.sites(v, 1, d) {
				x := normal(6, 1, d)
				in, err := s.instance(oracle{}, x)
				if t.ok(s.place, err) {
					in.checkTrace(t, x, len(v.changed) == 0)
				}
			}
		}
	}
}

func (in *instance) checkTrace(t *trial, x []float64, byDefault bool) {
	out, err := in.quantize(x)
	if !t.ok(in.at(), err) {
		return
	}
	trace := 0.0
	for i := range x {
		g, err := in.byX(x, with(make([]float64, len(x)), i, 1))
		if !t.ok(in.at(), err) {
			return
		}
		trace += g[i]
	}
	t.tried()
	n := float64(len(x))
	if out.mask == nil {
		if byDefault && !(trace > least*n && trace < greatest*n) {
			t.failf(in.at(), "the gradient passes with a factor of %.4g in the mean, want about 1", trace/n)
		}
		return
	}
	passed := dotProduct(out.mask, full(1, len(x)))
	if distance(trace, passed) > 1e-6*n {
		t.failf(in.at(), "the gradient passes with factors that add up to %.6g, but the mask passes %v of %v entries", trace, passed, n)
	}
	if byDefault && passed < n/2 {
		t.failf(in.at(), "the mask stops %v of %v entries of a normal row: is it inverted?", n-passed, n)
	}
}
