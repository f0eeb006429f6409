package cage

import (
	"math"
)

// defaultStrength is S of the paper's pre-training runs of 50 to 800 million parameters with a
// floor of 0.1, λ = 2 and s = 0.9.
const defaultStrength = 0.24

// fullStrengthSteps is the run length from which a strength lowered the loss in our studies; in
// shorter runs all raised it (docs/lab/paper.md).
const fullStrengthSteps = 1000

// DefaultStrength returns the strength of a run that sets neither strength nor λ: the paper's or,
// in runs shorter than [fullStrengthSteps], proportionally less. steps is 0 if
// it is unknown.
func DefaultStrength(steps int) float64 {
	if steps == 0 {
		return defaultStrength
	}
	return defaultStrength * min(1, float64(steps)/fullStrengthSteps)
}

// Pull describes what the decoupled correction does in a run to a weight that nothing else moves.
type Pull struct {
	Strength float64 // S = Σ α_t·λ_t
	// Removed is the share of the weight's error e = x − Q(x) that is removed while Q(x) does
	// not change: 1 − |Π(1 − α_t·λ_t)|, about 1 − e^(−S).
	Removed float64
	// Largest is the largest α_t·λ_t. Above 1, a step moves the weight past Q(x).
	Largest float64
}

// Pull returns the total effect of the correction under a schedule.
func (m CAGE) Pull(rates Schedule) Pull {
	p, left := Pull{}, 1.0
	// Steps of the silence add nothing, and a run may have many.
	for t := max(1, int(m.Silence*float64(rates.Total))); t <= rates.Total; t++ {
		αλ := m.PullOf(t, rates)
		p.Strength += αλ
		p.Largest = max(p.Largest, αλ)
		left *= 1 - αλ
	}
	p.Removed = 1 - math.Abs(left)
	return p
}

// PullOf returns α_t·λ_t of step t = 1…T, the share of e that the step removes.
func (m CAGE) PullOf(t int, rates Schedule) float64 {
	λ := m.Coefficient(t, rates.Total)
	switch {
	case λ == 0:
		return 0
	case m.Variant == Official: // see [Official]
		return rates.Rate(t) * λ
	}
	return rates.Rate(t-1) * λ
}

// Resolve returns the settings with the λ for which the correction has its Strength under a
// schedule; unchanged if λ is configured. λ is infinite if the rate is 0 at every step of the
// correction.
func (m CAGE) Resolve(rates Schedule) CAGE {
	if m.Strength == nil {
		return m
	}
	m.Lambda = 1
	m.Lambda = *m.Strength / m.Pull(rates).Strength
	if *m.Strength == 0 {
		m.Lambda = 0
	}
	return m
}
