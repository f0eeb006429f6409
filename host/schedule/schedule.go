// Package schedule holds the learning-rate schedules of training: pure
// functions from the number of an optimizer step to a rate, in float64.
//
// A schedule has no state, so resuming a run needs nothing but the step number.
// The schedule of CAGE's λ is part of the method and lives in host/cage; what
// is done with a rate (decay, the step itself, the correction) lives in
// host/train.
package schedule

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
)

// Schedule is a learning-rate schedule.
type Schedule interface {
	// Rate returns the learning rate of optimizer step k, counted from 0. The
	// last step of a run is Total−1. Rate(Total) is defined too, because the
	// "official" placement of the CAGE correction reads the rate of the step
	// that would follow. Values of k outside [0, Total] give the rate of the
	// nearer end.
	Rate(k int) float64
}

// Kind names a shape of schedule, as written in a configuration.
type Kind string

// The kinds of schedule.
const (
	OneCycleCos        Kind = "onecycle_cos"         // cosine up, cosine down; see oneCycleCos
	LinearWarmupCosine Kind = "linear_warmup_cosine" // straight up, cosine down; see linearWarmupCosine
	WSD                Kind = "wsd"                  // warm-up, stable, decay; see wsd
	Constant           Kind = "constant"             // the peak rate at every step
)

// Kinds lists every kind, the default first.
func Kinds() []Kind { return []Kind{OneCycleCos, LinearWarmupCosine, WSD, Constant} }

// Shape names the curve along which the last phase of WSD falls.
type Shape string

// The shapes of WSD's decay, over its progress u from 0 to 1.
const (
	Linear Shape = "linear" // 1 − u
	Sqrt   Shape = "sqrt"   // 1 − √u
	Cosine Shape = "cosine" // (1 + cos πu)/2
)

// Shapes lists every shape, the default first.
func Shapes() []Shape { return []Shape{Linear, Sqrt, Cosine} }

// Config says which schedule to build. A field that its kind does not use is
// ignored. No zero is replaced by a default: start from Default.
type Config struct {
	Kind   Kind
	Peak   float64 // the highest rate, > 0; every kind
	Total  int     // optimizer steps of the whole run, ≥ 1; every kind
	Warmup int     // steps of the rise, in [0, Total]; every kind but Constant

	Div       float64 // OneCycleCos, WSD: the rise starts at Peak/Div, ≥ 1
	FinalDiv  float64 // OneCycleCos: the fall ends at Peak/Div/FinalDiv, > 0
	FinalFrac float64 // LinearWarmupCosine, WSD: the fall ends at FinalFrac·Peak, in [0, 1]
	DecayFrac float64 // WSD: share of Total that decays, in [0, 1]; ⌊DecayFrac·Total⌋ steps
	Shape     Shape   // WSD: curve of the decay
}

// Default returns the settings of a kind for a run of total steps with the
// given peak rate: warm-up over a tenth of the steps (rounded down), a start at
// a hundredth of the peak, and an end at a tenth of it (WSD: at 0, over the last
// tenth, along a line).
func Default(kind Kind, peak float64, total int) Config {
	c := Config{
		Kind: kind, Peak: peak, Total: total, Warmup: total / 10,
		Div: 100, FinalDiv: 0.1, FinalFrac: 0.1, DecayFrac: 0.1, Shape: Linear,
	}
	if kind == WSD {
		c.FinalFrac = 0
	}
	return c
}

// SettingError reports a setting that no schedule can be built from.
type SettingError struct {
	Setting string // name of the field of Config, in the form a configuration uses
	Reason  string // what is wrong and what would be right
}

// Error describes the setting and what would be right.
func (e *SettingError) Error() string {
	return fmt.Sprintf("learning-rate schedule: %s %s", e.Setting, e.Reason)
}

// New builds the schedule that c describes. The error joins a *SettingError for
// every setting that is wrong.
func New(c Config) (Schedule, error) {
	if !slices.Contains(Kinds(), c.Kind) {
		return nil, &SettingError{"kind", fmt.Sprintf("is %q, want one of %s", c.Kind, join(Kinds()))}
	}
	if err := c.check(); err != nil {
		return nil, err
	}
	switch c.Kind {
	case LinearWarmupCosine:
		return linearWarmupCosine{c}, nil
	case WSD:
		return wsd{c, c.decaySteps()}, nil
	case Constant:
		return constant(c.Peak), nil
	}
	return oneCycleCos{c}, nil
}

// check returns what is wrong with the settings that c.Kind uses.
func (c Config) check() error {
	var errs []error
	need := func(ok bool, setting, format string, args ...any) {
		if !ok {
			errs = append(errs, &SettingError{setting, fmt.Sprintf(format, args...)})
		}
	}
	within := func(x, low, high float64) bool { return x >= low && x <= high } // false for NaN
	need(c.Peak > 0 && !math.IsInf(c.Peak, 0), "peak", "is %v, want a finite rate above 0", c.Peak)
	need(c.Total >= 1, "total", "is %d steps, want at least 1", c.Total)
	if c.Kind != Constant {
		need(c.Warmup >= 0 && c.Warmup <= max(c.Total, 0), "warmup", "is %d steps, want 0 to %d (the whole run)", c.Warmup, c.Total)
	}
	if c.Kind == OneCycleCos || c.Kind == WSD {
		need(within(c.Div, 1, math.MaxFloat64), "div", "is %v, want a finite number of at least 1", c.Div)
	}
	if c.Kind == OneCycleCos {
		need(within(c.FinalDiv, math.SmallestNonzeroFloat64, math.MaxFloat64), "final_div", "is %v, want a finite number above 0", c.FinalDiv)
		need(errs != nil || !math.IsInf(c.Peak/c.Div/c.FinalDiv, 0), "final_div", "is %v, which makes the last rate infinite", c.FinalDiv)
	}
	if c.Kind == LinearWarmupCosine || c.Kind == WSD {
		need(within(c.FinalFrac, 0, 1), "final_frac", "is %v, want 0 to 1", c.FinalFrac)
	}
	if c.Kind == WSD {
		need(within(c.DecayFrac, 0, 1), "decay_frac", "is %v, want 0 to 1", c.DecayFrac)
		decay := c.decaySteps()
		need(errs != nil || c.Warmup+decay <= c.Total, "decay_frac", "is %v, so that %d steps of warm-up and %d of decay exceed the run's %d", c.DecayFrac, c.Warmup, decay, c.Total)
		need(slices.Contains(Shapes(), c.Shape), "shape", "is %q, want one of %s", c.Shape, join(Shapes()))
	}
	return errors.Join(errs...)
}

// step confines k to the steps for which the schedule is defined.
func (c Config) step(k int) int { return min(max(k, 0), c.Total) }

// constant is the same rate at every step.
type constant float64

func (r constant) Rate(int) float64 { return float64(r) }

// halfCosine is (1 + cos πu)/2, which falls from 1 to 0 while u goes from 0 to 1.
func halfCosine(u float64) float64 { return 0.5 * (1 + math.Cos(math.Pi*u)) }

func join[T ~string](names []T) string {
	quoted := make([]string, len(names))
	for i, name := range names {
		quoted[i] = fmt.Sprintf("%q", string(name))
	}
	return strings.Join(quoted, ", ")
}

// decaySteps rounds down, forgiving the last bit of a decimal fraction that binary
// cannot hold: 0.29 of 100 is 29.
func (c Config) decaySteps() int { return int(c.DecayFrac*float64(c.Total) + 1e-9) }
