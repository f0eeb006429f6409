package cage

import (
	"fmt"
	"math"

	"github.com/cage-qat/cage/internal/schema"
)

// ScheduleKind names the shape of a schedule in a configuration.
type ScheduleKind string

// The kinds of schedule.
const (
	OneCycleCos        ScheduleKind = "onecycle_cos"         // cosine rise, cosine fall
	LinearWarmupCosine ScheduleKind = "linear_warmup_cosine" // linear rise, cosine fall
	Cosine             ScheduleKind = "cosine"               // alias of LinearWarmupCosine
	LinearRate         ScheduleKind = "linear"               // linear rise, linear fall
	WSD                ScheduleKind = "wsd"                  // warm-up, stable, decay
	ConstantRate       ScheduleKind = "constant"             // the peak rate at every step
)

// ScheduleKinds lists every kind, the default first.
var ScheduleKinds = []ScheduleKind{OneCycleCos, LinearWarmupCosine, Cosine, LinearRate, WSD,
	ConstantRate}

// DecayShape names the curve of a decay from 1 to f, over its progress u from 0 to 1. The formulas
// are those of wsd_schedule in QuEST's training code (Panferov et al. 2025); f is FinalFrac.
type DecayShape string

// The shapes of WSD's decay: f + (1−f)·h(u) with the h given here, except ExponentialDecay.
const (
	LinearDecay       DecayShape = "linear"        // 1 − u
	CosineDecay       DecayShape = "cosine"        // (1 + cos πu)/2
	MirrorCosineDecay DecayShape = "mirror_cosine" // 2(1 − u) − (1 + cos πu)/2
	ExponentialDecay  DecayShape = "exponential"   // fᵘ; needs f > 0
	SquareDecay       DecayShape = "square"        // 1 − u²
	SqrtDecay         DecayShape = "sqrt"          // 1 − √u
)

// DecayShapes lists every shape, the default first.
var DecayShapes = []DecayShape{LinearDecay, CosineDecay, MirrorCosineDecay, ExponentialDecay,
	SquareDecay, SqrtDecay}

// Schedule is a learning-rate schedule: a pure function from the index of an optimizer step to a
// rate, in float64. Fields that its kind does not use are ignored.
type Schedule struct {
	Kind   ScheduleKind
	Peak   float64 // the highest rate, > 0; every kind
	Total  int     // optimizer steps of the whole run, ≥ 1; every kind
	Warmup int     // steps of the warm-up, in [0, Total]; every kind but ConstantRate

	Div       float64    // OneCycleCos, WSD: the rise starts at Peak/Div, ≥ 1
	FinalDiv  float64    // OneCycleCos: the fall ends at Peak/Div/FinalDiv, > 0
	FinalFrac float64    // other falling kinds: the fall ends at FinalFrac·Peak, in [0, 1]
	DecayFrac float64    // WSD: decay phase as a fraction of Total, in [0, 1]; ⌊DecayFrac·Total⌋ steps
	Shape     DecayShape // WSD: curve of the decay
}

// Rate returns the learning rate of optimizer step k, counted from 0. The last step of a run is
// Total−1. Rate(Total) is defined, too, because the "official" variant of the CAGE correction uses
// the rate of the step that would follow. k is clipped to [0, Total].
func (s Schedule) Rate(k int) float64 {
	k = min(max(k, 0), s.Total)
	switch s.Kind {
	case OneCycleCos:
		return s.oneCycleCos(k)
	case LinearWarmupCosine, Cosine:
		return s.linearWarmup(k, CosineDecay)
	case LinearRate:
		return s.linearWarmup(k, LinearDecay)
	case WSD:
		return s.wsd(k)
	}
	return s.Peak // ConstantRate
}

func halfCosine(u float64) float64 { return 0.5 * (1 + math.Cos(math.Pi*u)) }

// oneCycleCos rises from Peak/Div to Peak and falls to Peak/Div/FinalDiv, both along half a cosine:
// the one-cycle schedule (Smith and Topin 2018, "Super-Convergence") with the arguments of QuEST's
// training code (Panferov et al. 2025). With W = Warmup, T = Total and
// A(a, b, u) = b + (a−b)(1 + cos πu)/2:
//
//	k ≤ W−1:  A(start, peak, k/(W−1))
//	else:     A(peak, end, (k−W+1)/(T−W))
//
// The peak is reached at step W−1 and the end at step T−1; Rate(T) is one step past the end of the
// cosine, where it rises slightly. With a warm-up of one step, the first rate is the peak. If the
// warm-up takes the whole run, the rate does not fall: Rate(T) is the peak.
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

func anneal(a, b, u float64) float64 { return b + (a-b)*halfCosine(u) }

// linearWarmup rises along a line that reaches Peak at step W−1, and falls to FinalFrac·Peak
// along half a cosine (cosine annealing: Loshchilov and Hutter 2017, "SGDR") or a line.
// With W = Warmup, T = Total:
//
//	k < W:  peak·(k+1)/W
//	else:   fall(u),  u = min(1, (k+1−W)/(T−W))
func (s Schedule) linearWarmup(k int, shape DecayShape) float64 {
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
// The end is reached at k = T, one step after the run's last. Without a decay (D = 0) the rate
// stays at the peak: a warm-up followed by a constant rate, as used for fine-tuning.
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
		return s.Peak * s.FinalFrac // exact, whereas a cosine has a rounding error
	}
	return s.fall(float64(k-hold)/float64(decay), s.Shape)
}

func (s Schedule) fall(u float64, shape DecayShape) float64 {
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

// ScheduleSettings is the [schedule] table of a configuration.
type ScheduleSettings struct {
	Kind   ScheduleKind
	Rate   float64    // the peak rate
	Warmup float64    // below 1, a fraction of the steps; otherwise a number of steps; see WarmupSteps
	From   float64    // OneCycleCos, WSD: the first rate as a fraction of Rate
	Floor  float64    // the last rate as a fraction of Rate
	Decay  float64    // WSD: decay phase as a fraction of the steps
	Shape  DecayShape // WSD: curve of the decay
}

// Keys returns the keys of the table.
func (s *ScheduleSettings) Keys() []schema.Key {
	return []schema.Key{
		{Name: "kind", To: &s.Kind, Is: schema.OneOf(ScheduleKinds...), Default: OneCycleCos,
			Doc: "shape; onecycle_cos: cosine warm-up and cosine decay; cosine (also " +
				"linear_warmup_cosine): linear warm-up, cosine decay; linear: linear warm-up and " +
				"decay; wsd: linear warm-up, constant rate, and a decay at the end; constant: the " +
				"same rate at every step, without warm-up or floor; wsd with decay = 0 is constant " +
				"after its warm-up"},
		{Name: "rate", To: &s.Rate, Is: schema.Above(0, 1000),
			Doc: "peak learning rate"},
		{Name: "warmup", To: &s.Warmup, Is: schema.Between(0, schema.Most), Default: 0.1,
			Doc: "warm-up: a fraction of the steps when below 1, else an integer number of steps"},
		{Name: "warmup_from", To: &s.From, Is: schema.Above(0, 1), Default: 0.01,
			Doc: "onecycle_cos and wsd: rate at the start of the warm-up, as a fraction of rate"},
		{Name: "floor", To: &s.Floor, Is: schema.Between(0, 1), Default: 0.1,
			Doc: "rate at the end, as a fraction of rate"},
		{Name: "decay", To: &s.Decay, Is: schema.Between(0, 1), Default: 0.1,
			Doc: "wsd only: fraction of the steps in the decay phase"},
		{Name: "decay_shape", To: &s.Shape, Is: schema.OneOf(DecayShapes...), Default: LinearDecay,
			Doc: "wsd only: curve of the decay, over its progress u from 0 to 1. The rate is " +
				"floor + (1 − floor)·h of rate, with h = 1 − u (linear), (1 + cos πu)/2 (cosine), " +
				"2(1 − u) − (1 + cos πu)/2 (mirror_cosine), 1 − u² (square) or 1 − √u (sqrt); " +
				"exponential: floorᵘ of rate"},
	}
}

// WarmupSteps returns the number of warm-up steps in a run of the given length; a fraction below 1
// is rounded down.
func (s ScheduleSettings) WarmupSteps(steps int) int {
	return StepsOf(s.Warmup, steps)
}

// StepsOf converts a setting to a number of steps in a run of the given length: a setting below 1
// is a fraction of the length, rounded down; others are numbers of steps.
func StepsOf(setting float64, steps int) int {
	if setting >= 1 {
		return int(setting)
	}
	return portion(setting, steps)
}

// Problem returns the first problem, if any, with the warm-up and decay of a run of the given
// number of steps; any others may be consequences of it. If the number of steps is unknown (0), it
// reports only problems that exist for every number.
func (s ScheduleSettings) Problem(steps int) (p schema.Problem, found bool) {
	warmup, decay := s.WarmupSteps(steps), portion(s.Decay, steps)
	p = schema.Problem{Key: "schedule.warmup"}
	switch {
	case s.Warmup >= 1 && s.Warmup != math.Trunc(s.Warmup):
		p.Found = "the float " + schema.Decimal(s.Warmup)
		p.Hint = "want a fraction of the steps below 1, or an integer number of steps"
	case s.Kind == WSD && s.Shape == ExponentialDecay && s.Floor == 0:
		p.Key = "schedule.floor"
		p.Found = fmt.Sprintf("the float 0 with decay_shape = %q", s.Shape)
		p.Hint = "want a floor above 0, to which the rate falls by the same factor at each step"
	case steps == 0:
		return p, false
	case warmup > steps && s.Kind.reads("warmup"):
		p.Found = fmt.Sprintf("a warm-up of %d steps in a run of %d", warmup, steps)
		p.Hint = "want at most train.steps, or a fraction below 1"
	case s.Kind == WSD && warmup+decay > steps:
		p.Key = "schedule.decay"
		p.Found = fmt.Sprintf("a warm-up of %d and a decay of %d steps in a run of %d",
			warmup, decay, steps)
		p.Hint = "want at most train.steps for both together"
	default:
		return p, false
	}
	return p, true
}

// Idle lists the keys that have no effect in this kind of schedule although they are set: their
// values are neither 0 nor the default.
func (s ScheduleSettings) Idle() (keys []string) {
	var unset ScheduleSettings
	defaults := unset.Keys()
	for i, k := range s.Keys() {
		given := false
		switch value := k.To.(type) {
		case *float64:
			given = *value != 0 && *value != defaults[i].Default
		case *DecayShape:
			given = *value != "" && *value != defaults[i].Default
		}
		if given && k.Name != "rate" && !s.Kind.reads(k.Name) {
			keys = append(keys, "schedule."+k.Name)
		}
	}
	return keys
}

func (k ScheduleKind) reads(key string) bool {
	switch k {
	case ConstantRate:
		return false
	case LinearWarmupCosine, Cosine, LinearRate:
		return key == "warmup" || key == "floor"
	case OneCycleCos:
		return key != "decay" && key != "decay_shape"
	}
	return true
}

// Schedule returns the schedule of a run of the given number of steps.
func (s ScheduleSettings) Schedule(steps int) Schedule {
	c := Schedule{
		Kind: s.Kind, Peak: s.Rate, Total: steps, Warmup: s.WarmupSteps(steps),
		Div: 1 / s.From, FinalDiv: 1e30, FinalFrac: s.Floor, DecayFrac: s.Decay, Shape: s.Shape,
	}
	if s.Floor > 0 { // one-cycle specifies its floor relative to its start
		c.FinalDiv = 1 / (s.Floor * c.Div)
	}
	return c
}

// portion rounds fraction·steps down, tolerating the representation error of a decimal fraction:
// 0.29 of 100 is 29.
func portion(fraction float64, steps int) int {
	return int(math.Floor(fraction*float64(steps) + 1e-9))
}
