package schedule

import (
	"fmt"
	"math"

	"github.com/cage-qat/cage/internal/schema"
)

// Settings is the table [schedule] of a configuration.
type Settings struct {
	Kind   Kind
	Rate   float64 // the peak rate
	Warmup float64 // below 1, a fraction of the steps; otherwise a number of steps; see WarmupSteps
	From   float64 // OneCycleCos, WSD: the first rate as a fraction of Rate
	Floor  float64 // the last rate as a fraction of Rate
	Decay  float64 // WSD: fraction of the steps that decay
	Shape  Shape   // WSD: curve of the decay
}

// Keys returns the keys of the table.
func (s *Settings) Keys() []schema.Key {
	return []schema.Key{
		{Name: "kind", To: &s.Kind, Is: schema.OneOf(Kinds()...), Default: OneCycleCos,
			Doc: "shape; onecycle_cos: half a cosine up and one down; cosine (also " +
				"linear_warmup_cosine): a line up, half a cosine down; linear: a line up and one " +
				"down; wsd: a line up, the rate, and a decay at the end; constant has the rate at " +
				"every step, without a warm-up or a floor; wsd with decay = 0 is constant after " +
				"its warm-up"},
		{Name: "rate", To: &s.Rate, Is: schema.Above(0, 1000),
			Doc: "peak learning rate"},
		{Name: "warmup", To: &s.Warmup, Is: schema.Between(0, schema.Most), Default: 0.1,
			Doc: "warm-up: a fraction of the steps when below 1, else a whole number of steps"},
		{Name: "warmup_from", To: &s.From, Is: schema.Above(0, 1), Default: 0.01,
			Doc: "onecycle_cos and wsd: rate at the beginning of the warm-up, as a fraction of rate"},
		{Name: "floor", To: &s.Floor, Is: schema.Between(0, 1), Default: 0.1,
			Doc: "rate at the end, as a fraction of rate"},
		{Name: "decay", To: &s.Decay, Is: schema.Between(0, 1), Default: 0.1,
			Doc: "wsd only: fraction of the steps in the decay phase"},
		{Name: "decay_shape", To: &s.Shape, Is: schema.OneOf(Shapes()...), Default: LinearDecay,
			Doc: "wsd only: curve of the decay, over its progress u from 0 to 1. The rate is " +
				"floor + (1 − floor)·h of rate, with h = 1 − u (linear), (1 + cos πu)/2 (cosine), " +
				"2(1 − u) − (1 + cos πu)/2 (mirror_cosine), 1 − u² (square) or 1 − √u (sqrt); " +
				"exponential: floorᵘ of rate"},
	}
}

// WarmupSteps returns the number of warm-up steps in a run of the given length: a
// fraction below 1 is rounded down.
func (s Settings) WarmupSteps(steps int) int {
	return StepsOf(s.Warmup, steps)
}

// StepsOf is the number of steps that a setting gives in a run of the given length: the setting
// itself, or below 1 a fraction of the length, rounded down.
func StepsOf(setting float64, steps int) int {
	if setting >= 1 {
		return int(setting)
	}
	return portion(setting, steps)
}

// Problem returns what is wrong, if anything, with the phases of a run of the given
// number of steps: only the first problem, as the others follow from it. If the number is
// not known (0), it reports only what is wrong for every number.
func (s Settings) Problem(steps int) (p schema.Problem, found bool) {
	warmup, decay := s.WarmupSteps(steps), portion(s.Decay, steps)
	p = schema.Problem{Key: "schedule.warmup", With: []string{"train.steps"}}
	switch {
	case s.Warmup >= 1 && s.Warmup != math.Trunc(s.Warmup):
		p.With = nil
		p.Found, p.Hint = "the float "+schema.Decimal(s.Warmup), "want a fraction of the steps below 1, or a whole number of steps"
	case s.Kind == WSD && s.Shape == ExponentialDecay && s.Floor == 0:
		p.Key, p.With = "schedule.floor", []string{"schedule.kind", "schedule.decay_shape"}
		p.Found = fmt.Sprintf("the float 0 with decay_shape = %q", s.Shape)
		p.Hint = "want a floor above 0, to which the rate falls by the same factor at each step"
	case steps == 0:
		return p, false
	case warmup > steps && s.Kind.reads("warmup"):
		p.Found, p.Hint = fmt.Sprintf("a warm-up of %d steps in a run of %d", warmup, steps), "want at most train.steps, or a fraction below 1"
	case s.Kind == WSD && warmup+decay > steps:
		p.Key, p.With = "schedule.decay", []string{"schedule.warmup", "schedule.kind", "train.steps"}
		p.Found, p.Hint = fmt.Sprintf("a warm-up of %d and a decay of %d steps in a run of %d", warmup, decay, steps), "want both together to fit in train.steps"
	default:
		return p, false
	}
	return p, true
}

// Idle lists the keys that the kind of the schedule does not use, if their values are neither 0 nor the default.
func (s Settings) Idle() (keys []string) {
	var unset Settings
	defaults := unset.Keys()
	for i, k := range s.Keys() {
		given := false
		switch value := k.To.(type) {
		case *float64:
			given = *value != 0 && *value != defaults[i].Default
		case *Shape:
			given = *value != "" && *value != defaults[i].Default
		}
		if given && k.Name != "rate" && !s.Kind.reads(k.Name) {
			keys = append(keys, "schedule."+k.Name)
		}
	}
	return keys
}

// reads reports whether a schedule of the kind depends on the key.
func (k Kind) reads(key string) bool {
	switch k {
	case Constant:
		return false
	case LinearWarmupCosine, Cosine, Linear:
		return key == "warmup" || key == "floor"
	case OneCycleCos:
		return key != "decay" && key != "decay_shape"
	}
	return true
}

// Schedule returns the schedule of a run of the given number of steps.
func (s Settings) Schedule(steps int) (Schedule, error) {
	c := Default(s.Kind, s.Rate, steps)
	c.Warmup, c.FinalFrac, c.DecayFrac, c.Div = s.WarmupSteps(steps), s.Floor, s.Decay, 1/s.From
	c.Shape = s.Shape
	// One-cycle states its floor relative to its start.
	c.FinalDiv = 1 / (s.Floor * c.Div)
	if s.Floor == 0 {
		c.FinalDiv = 1e30
	}
	return New(c)
}

// portion rounds fraction·steps down, forgiving the last bit of a decimal fraction that
// binary cannot hold: 0.29 of 100 is 29.
func portion(fraction float64, steps int) int { return int(math.Floor(fraction*float64(steps) + 1e-9)) }
