// Package schedule holds the learning-rate schedules of training: pure
// functions from the number of an optimizer step to a rate, in float64.
//
// A schedule has no state, so resuming a run needs nothing but the step number.
// The schedule of CAGE's λ, and what a step does with a rate (decay, the update, the
// correction), are part of the method and live in host/cage.
package schedule

import (
	"fmt"
	"math"
	"slices"
)

// Kind names a shape of schedule, as written in a configuration.
type Kind string

// The kinds of schedule.
const (
	OneCycleCos        Kind = "onecycle_cos"         // cosine rise, cosine fall; see oneCycleCos
	LinearWarmupCosine Kind = "linear_warmup_cosine" // linear rise, cosine fall; see linearWarmup
	Cosine             Kind = "cosine"               // another name of LinearWarmupCosine
	Linear             Kind = "linear"               // linear rise, linear fall; see linearWarmup
	WSD                Kind = "wsd"                  // warm-up, stable, decay; see wsd
	Constant           Kind = "constant"             // the peak rate at every step
)

// Kinds lists every kind, the default first.
func Kinds() []Kind {
	return []Kind{OneCycleCos, LinearWarmupCosine, Cosine, Linear, WSD, Constant}
}

// Shape names the curve of a fall from 1 to f, over its progress u from 0 to 1. The formulas are
// those of wsd_schedule in QuEST's training code (Panferov et al. 2025); f is FinalFrac.
type Shape string

// The shapes of WSD's decay: f + (1−f)·h(u) with the h given here, but for ExponentialDecay.
const (
	LinearDecay       Shape = "linear"        // 1 − u
	CosineDecay       Shape = "cosine"        // (1 + cos πu)/2
	MirrorCosineDecay Shape = "mirror_cosine" // 2(1 − u) − (1 + cos πu)/2
	ExponentialDecay  Shape = "exponential"   // fᵘ; needs f > 0
	SquareDecay       Shape = "square"        // 1 − u²
	SqrtDecay         Shape = "sqrt"          // 1 − √u
)

// Shapes lists every shape, the default first.
func Shapes() []Shape {
	return []Shape{
		LinearDecay, CosineDecay, MirrorCosineDecay, ExponentialDecay, SquareDecay, SqrtDecay,
	}
}

// Config says which schedule to build. A field that its kind does not use is ignored.
// Zeros are not replaced by defaults: start from Default.
type Config struct {
	Kind   Kind
	Peak   float64 // the highest rate, > 0; every kind
	Total  int     // optimizer steps of the whole run, ≥ 1; every kind
	Warmup int     // steps of the rise, in [0, Total]; every kind but Constant

	Div       float64 // OneCycleCos, WSD: the rise starts at Peak/Div, ≥ 1
	FinalDiv  float64 // OneCycleCos: the fall ends at Peak/Div/FinalDiv, > 0
	FinalFrac float64 // the others but Constant: the fall ends at FinalFrac·Peak, in [0, 1]
	DecayFrac float64 // WSD: share of Total that decays, in [0, 1]; ⌊DecayFrac·Total⌋ steps
	Shape     Shape   // WSD: curve of the decay
}

// Default returns the settings of a kind for a run of total steps with the given peak
// rate: warm-up over a tenth of the steps (rounded down), a start at a hundredth of the
// peak, and an end at a tenth of it (for WSD: at 0, linearly over the last tenth).
func Default(kind Kind, peak float64, total int) Config {
	c := Config{
		Kind: kind, Peak: peak, Total: total, Warmup: total / 10,
		Div: 100, FinalDiv: 0.1, FinalFrac: 0.1, DecayFrac: 0.1, Shape: LinearDecay,
	}
	if kind == WSD {
		c.FinalFrac = 0
	}
	return c
}

// New builds the schedule that c describes. It reports only an unknown kind; [Settings]
// checks what a kind requires of its settings.
func New(c Config) (Schedule, error) {
	if !slices.Contains(Kinds(), c.Kind) {
		return Schedule{}, fmt.Errorf("there is no learning-rate schedule of kind %q", c.Kind)
	}
	return Schedule{c}, nil
}

// Schedule is a learning-rate schedule.
type Schedule struct{ Config }

// Rate returns the learning rate of optimizer step k, counted from 0. The last step of a
// run is Total−1. Rate(Total) is defined, too, because the "official" placement of the
// CAGE correction reads the rate of the step that would follow. A k outside [0, Total]
// gives the rate of the nearer end.
func (s Schedule) Rate(k int) float64 {
	k = min(max(k, 0), s.Total)
	switch s.Kind {
	case OneCycleCos:
		return s.oneCycleCos(k)
	case LinearWarmupCosine, Cosine:
		return s.linearWarmup(k, CosineDecay)
	case Linear:
		return s.linearWarmup(k, LinearDecay)
	case WSD:
		return s.wsd(k)
	}
	return s.Peak // Constant
}

// halfCosine is (1 + cos πu)/2, which falls from 1 to 0 while u goes from 0 to 1.
func halfCosine(u float64) float64 { return 0.5 * (1 + math.Cos(math.Pi*u)) }

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

// linearWarmup rises along a line that reaches Peak at step W−1, and falls to FinalFrac·Peak
// along half a cosine (cosine annealing: Loshchilov and Hutter 2017, "SGDR") or a line.
// With W = Warmup, T = Total:
//
//	k < W:  peak·(k+1)/W
//	else:   fall(u),  u = min(1, (k+1−W)/(T−W))
func (s Schedule) linearWarmup(k int, shape Shape) float64 {
	if k < s.Warmup {
		return s.Peak * float64(k+1) / float64(s.Warmup)
	}
	return s.fall(min(1, float64(k+1-s.Warmup)/float64(max(1, s.Total-s.Warmup))), shape)
}

// wsd warms up along a line from Peak/Div, stays at Peak, and decays to
// FinalFrac·Peak over the last D = ⌊DecayFrac·Total⌋ steps (warm-up, stable,
// decay: Hu et al. 2024, "MiniCPM"). With W = Warmup, T = Total:
//
//	k < W:    peak·(k/W + (1 − k/W)/div)
//	k < T−D:  peak
//	else:     fall(u),  u = (k − (T−D))/D
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
	return s.fall(float64(k-hold)/float64(decay), s.Shape)
}

// fall is the rate at progress u in [0, 1] of a fall from Peak to FinalFrac·Peak.
func (s Schedule) fall(u float64, shape Shape) float64 {
	f, height := s.FinalFrac, 1-u
	switch shape {
	case CosineDecay:
		height = halfCosine(u)
	case MirrorCosineDecay:
		height = 2*height - halfCosine(u)
	case SquareDecay:
		height = 1 - u*u
	case SqrtDecay:
		height = 1 - math.Sqrt(u)
	case ExponentialDecay:
		return s.Peak * math.Pow(f, u)
	}
	return s.Peak * (f + (1-f)*height)
}
