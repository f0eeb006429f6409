// Package schedule holds the learning-rate schedules of training: pure
// functions from the number of an optimizer step to a rate, in float64.
//
// A schedule has no state, so resuming a run needs nothing but the step number.
// The schedule of CAGE's λ, and what a step does with a rate (decay, the update, the
// correction), are part of the method and live in host/method/cage.
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
	LinearWarmupCosine Kind = "linear_warmup_cosine" // linear rise, cosine fall; see linearWarmupCosine
	WSD                Kind = "wsd"                  // warm-up, stable, decay; see wsd
	Constant           Kind = "constant"             // the peak rate at every step
)

// Kinds lists every kind, the default first.
func Kinds() []Kind { return []Kind{OneCycleCos, LinearWarmupCosine, WSD, Constant} }

// Shape names the curve that the decay phase of WSD follows.
type Shape string

// The shapes of WSD's decay, over its progress u from 0 to 1.
const (
	Linear Shape = "linear" // 1 − u
	Sqrt   Shape = "sqrt"   // 1 − √u
	Cosine Shape = "cosine" // (1 + cos πu)/2
)

// Config says which schedule to build. A field that its kind does not use is ignored.
// Zeros are not replaced by defaults: start from Default.
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

// Default returns the settings of a kind for a run of total steps with the given peak
// rate: warm-up over a tenth of the steps (rounded down), a start at a hundredth of the
// peak, and an end at a tenth of it (for WSD: at 0, linearly over the last tenth).
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
	case LinearWarmupCosine:
		return s.linearWarmupCosine(k)
	case WSD:
		return s.wsd(k)
	}
	return s.Peak // Constant
}

// halfCosine is (1 + cos πu)/2, which falls from 1 to 0 while u goes from 0 to 1.
func halfCosine(u float64) float64 { return 0.5 * (1 + math.Cos(math.Pi*u)) }
