package scaling

import "math"

// result gathers what the search found.
func (f *fitting) result(all []minimum) *Fit {
	m := &f.model
	full := m.full(all[0].x)
	fit := &Fit{
		Reference: f.reference, Points: f.points, Cost: all[0].cost,
		Starts: f.starts, Finished: len(all), Level: f.options.Level,
	}
	for _, other := range all {
		if other.cost <= all[0].cost*(1+sameCost) {
			fit.Agree++
		}
	}
	for j, name := range names {
		fit.Parameters = append(fit.Parameters, f.estimate(name, full, j))
	}
	p := fit.Parameters
	fit.Law = Law{A: p[atA].Value, Alpha: p[atAlpha].Value, B: p[atB].Value, Beta: p[atBeta].Value, E: p[atE].Value}
	if f.reference != nil {
		fit.Effs = append(fit.Effs, f.efficiency(*f.reference, Estimate{Value: 1, Low: 1, High: 1, Status: Fixed}))
	}
	for i, g := range f.groups {
		fit.Effs = append(fit.Effs, f.efficiency(g, f.estimate("", full, shared+i)))
	}
	squares, law := 0.0, curveOf(full)
	for i := range f.points {
		size, data, _ := law.terms(m, i)
		r := m.logLoss[i] - math.Log(size+data+law.floor)
		fit.Residuals = append(fit.Residuals, r)
		squares += r * r
	}
	fit.RMS = math.Sqrt(squares / float64(len(f.points)))
	return fit
}

func (f *fitting) efficiency(g Group, e Estimate) Efficiency {
	e.Name = "eff(" + g.String() + ")"
	out := Efficiency{Group: g, Estimate: e, Normalized: Normalized(e.Value, g.Bits)}
	for _, p := range f.points {
		if p.Group == g {
			out.Points++
		}
	}
	return out
}

// estimate is the parameter at a place, so far without an interval.
func (f *fitting) estimate(name string, full []float64, j int) Estimate {
	v := math.Exp(full[j])
	if f.model.isFixed(j) {
		v = f.options.Fixed[name] // the number as it was given
	}
	e := Estimate{Name: name, Value: v, Low: v, High: v, Status: Fitted}
	low, high := f.model.bounds()
	switch {
	case f.model.isFixed(j):
		e.Status = Fixed
	case full[j] <= low[j] || full[j] >= high[j]:
		e.Status = AtBound
	}
	return e
}

// at is the estimate of a place in the vector of parameters.
func (fit *Fit) at(j int) *Estimate {
	if j < shared {
		return &fit.Parameters[j]
	}
	if fit.Reference != nil {
		j++
	}
	return &fit.Effs[j-shared].Estimate
}

// Eff returns the efficiency of a group, or 0 if it has none.
func (fit *Fit) Eff(g Group) float64 {
	for _, e := range fit.Effs {
		if e.Group == g {
			return e.Value
		}
	}
	return 0
}
