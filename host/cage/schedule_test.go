package cage_test

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/cage-qat/cage/host/cage"
	"github.com/cage-qat/cage/internal/testing/golden"
)

func TestGoldenTables(t *testing.T) {
	kinds, shapes := map[cage.ScheduleKind]int{}, map[cage.DecayShape]int{}
	for _, file := range []string{"lr_schedule", "shapes"} {
		f := golden.Load(t, "testdata/"+file+".json")
		f.RunList(t, "tables", func(t *testing.T, o golden.Object) {
			kind := cage.ScheduleKind(o.String("kind"))
			kinds[kind]++
			c := cage.DefaultSchedule(kind, o.Float("peak"), o.Int("total"))
			c.Warmup = o.Int("warmup")
			c.Div = o.FloatOr("div", c.Div)
			c.FinalDiv = o.FloatOr("final_div", c.FinalDiv)
			c.FinalFrac = o.FloatOr("final_frac", c.FinalFrac)
			c.FinalFrac = o.FloatOr("final", c.FinalFrac)
			c.DecayFrac = o.FloatOr("decay_frac", c.DecayFrac)
			c.Shape = cage.DecayShape(o.StringOr("shape", string(c.Shape)))
			shapes[c.Shape]++
			s := c
			o.Close("values", rates(s, o.Array("values").Len()))
		})
	}
	if len(kinds) != len(cage.ScheduleKinds)-1 || len(shapes) != len(cage.DecayShapes) {
		t.Errorf("tables per kind: %v and per shape: %v, want some of each but constant", kinds, shapes)
	}
}

func rates(s cage.Schedule, n int) []float64 {
	out := make([]float64, n)
	for k := range out {
		out[k] = s.Rate(k)
	}
	return out
}

// TestEveryShortRun builds every kind for every warm-up of short runs. No rate is negative, above
// the peak or NaN, and none rises after the peak (except past the end, where the one-cycle cosine
// rises).
func TestEveryShortRun(t *testing.T) {
	for _, kind := range cage.ScheduleKinds {
		for total := 1; total <= 12; total++ {
			for warmup := 0; warmup <= total; warmup++ {
				c := cage.DefaultSchedule(kind, 2, total)
				c.Warmup = warmup
				c.DecayFrac = float64(total-warmup) / float64(total)
				s := c
				name := fmt.Sprintf("%s, %d of %d steps of warm-up", kind, warmup, total)
				for k := 0; k <= total; k++ {
					r := s.Rate(k)
					if !(r >= 0 && r <= 2*(1+1e-15)) {
						t.Fatalf("%s: rate(%d) = %v", name, k, r)
					}
					if k > warmup && k < total && r > s.Rate(k-1) {
						t.Fatalf("%s: rises from %v to %v at step %d", name, s.Rate(k-1), r, k)
					}
				}
				if s.Rate(-1) != s.Rate(0) || s.Rate(total+1) != s.Rate(total) ||
					s.Rate(math.MaxInt) != s.Rate(total) {
					t.Fatalf("%s: steps outside the run are not those of its ends", name)
				}
			}
		}
	}
}

func TestNamedPoints(t *testing.T) {
	with := func(kind cage.ScheduleKind, change func(*cage.Schedule)) cage.Schedule {
		c := cage.DefaultSchedule(kind, 1, 100)
		if change != nil {
			change(&c)
		}
		return c
	}
	tests := map[string]struct {
		c    cage.Schedule
		k    int
		want float64
	}{
		"one-cycle start": {with(cage.OneCycleCos, nil), 0, 0.01},
		"one-cycle peak":  {with(cage.OneCycleCos, nil), 9, 1},
		"one-cycle end":   {with(cage.OneCycleCos, nil), 99, 0.1},
		"one-cycle, one step up": {with(cage.OneCycleCos, func(c *cage.Schedule) { c.Warmup = 1 }), 0,
			1},
		"one-cycle, only warm-up": {with(cage.OneCycleCos, func(c *cage.Schedule) { c.Warmup = 100 }),
			100, 1},
		"cosine first": {with(cage.LinearWarmupCosine, nil), 0, 0.1},
		"cosine peak":  {with(cage.LinearWarmupCosine, nil), 9, 1},
		"cosine end":   {with(cage.LinearWarmupCosine, nil), 99, 0.1},
		"cosine, only warm-up": {
			with(cage.LinearWarmupCosine, func(c *cage.Schedule) { c.Warmup = 100 }), 99, 1},
		"wsd start":            {with(cage.WSD, nil), 0, 0.01},
		"wsd after warm-up":    {with(cage.WSD, nil), 10, 1},
		"wsd last stable step": {with(cage.WSD, nil), 90, 1},
		"wsd last step":        {with(cage.WSD, nil), 99, 0.1},
		"wsd end":              {with(cage.WSD, nil), 100, 0},
		"wsd without decay":    {with(cage.WSD, func(c *cage.Schedule) { c.DecayFrac = 0 }), 100, 1},
		"wsd decay to a half": {with(cage.WSD, func(c *cage.Schedule) { c.FinalFrac = 0.5 }), 95,
			0.75},
		"constant at the start":    {with(cage.ConstantRate, nil), 0, 1},
		"constant at the very end": {with(cage.ConstantRate, nil), 100, 1},
	}
	for name, test := range tests {
		if got := test.c.Rate(test.k); !(math.Abs(got-test.want) <= 1e-15) {
			t.Errorf("%s: rate(%d) = %v, want %v", name, test.k, got, test.want)
		}
	}
}

// TestExponentialToZero checks that an exponential decay to 0, which is impossible, is reported
// before the number of steps is known.
func TestExponentialToZero(t *testing.T) {
	s := cage.ScheduleSettings{
		Kind: cage.WSD, Rate: 1, From: 0.1, Decay: 0.1, Shape: cage.ExponentialDecay,
	}
	if p, found := s.Problem(0); !found || p.Key != "schedule.floor" {
		t.Errorf("%v, %+v", found, p)
	}
	for _, change := range []func(*cage.ScheduleSettings){
		func(s *cage.ScheduleSettings) { s.Floor = 1e-9 },
		func(s *cage.ScheduleSettings) { s.Shape = cage.LinearDecay },
		func(s *cage.ScheduleSettings) { s.Kind = cage.Cosine },
	} {
		fine := s
		change(&fine)
		if p, found := fine.Problem(100); found {
			t.Errorf("%+v: %+v", fine, p)
		}
	}
}

// TestWarmupOfConstant checks that a warm-up longer than the run is a problem of every kind but the
// constant rate.
func TestWarmupOfConstant(t *testing.T) {
	for _, kind := range cage.ScheduleKinds {
		s := cage.ScheduleSettings{Kind: kind, Rate: 1, Warmup: 100, From: 0.1}
		_, found := s.Problem(40)
		if found != (kind != cage.ConstantRate) {
			t.Errorf("%s: a problem is found: %v", kind, found)
		}
		if rate := s.Schedule(40).Rate(40); !found && rate != 1 {
			t.Errorf("%s: a rate of %v", kind, rate)
		}
	}
}

func TestPhaseLengths(t *testing.T) {
	for _, c := range []struct {
		value float64
		steps int
		want  int
	}{{0.1, 11_444, 1_144}, {0.3, 10, 3}, {0.29, 100, 29}, {0, 10, 0}, {0.999, 10, 9}, {1, 10, 1},
		{7, 10, 7}} {
		if got := (cage.ScheduleSettings{Warmup: c.value}).WarmupSteps(c.steps); got != c.want {
			t.Errorf("warm-up %g of %d is %d steps, want %d", c.value, c.steps, got, c.want)
		}
	}
}

func ExampleSchedule() {
	s := cage.DefaultSchedule(cage.OneCycleCos, 1e-3, 100)
	for _, k := range []int{0, 9, 50, 99} {
		fmt.Printf("step %2d: %.2e\n", k, s.Rate(k))
	}
	// Output:
	// step  0: 1.00e-05
	// step  9: 1.00e-03
	// step 50: 6.13e-04
	// step 99: 1.00e-04
}

// TestIdle checks that Idle names the keys that a kind of schedule does not read, unless they have
// their defaults.
func TestIdle(t *testing.T) {
	all := cage.ScheduleSettings{Rate: 1, Warmup: 15, From: 0.5, Floor: 0.3, Decay: 0.7,
		Shape: cage.SqrtDecay}
	for kind, want := range map[cage.ScheduleKind][]string{
		cage.ConstantRate: {"schedule.warmup", "schedule.warmup_from", "schedule.floor",
			"schedule.decay", "schedule.decay_shape"},
		cage.LinearWarmupCosine: {"schedule.warmup_from", "schedule.decay", "schedule.decay_shape"},
		cage.Cosine:             {"schedule.warmup_from", "schedule.decay", "schedule.decay_shape"},
		cage.LinearRate:         {"schedule.warmup_from", "schedule.decay", "schedule.decay_shape"},
		cage.OneCycleCos:        {"schedule.decay", "schedule.decay_shape"},
		cage.WSD:                nil,
	} {
		all.Kind = kind
		if got := all.Idle(); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", kind, got, want)
		}
		usual := cage.ScheduleSettings{Kind: kind, Rate: 1, Warmup: 0, From: 0.01, Floor: 0.1, Decay: 0.1}
		if got := usual.Idle(); len(got) > 0 {
			t.Errorf("%s with defaults: %q", kind, got)
		}
	}
}

// TestIdleChangesNothing checks that the keys that Idle names do not change rates, and others do.
func TestIdleChangesNothing(t *testing.T) {
	const steps = 40
	for _, kind := range cage.ScheduleKinds {
		base := cage.ScheduleSettings{Kind: kind, Rate: 1, Warmup: 0.1, From: 0.01, Floor: 0.1,
			Decay: 0.1}
		for key, change := range map[string]func(*cage.ScheduleSettings){
			"schedule.warmup":      func(s *cage.ScheduleSettings) { s.Warmup = 0.3 },
			"schedule.warmup_from": func(s *cage.ScheduleSettings) { s.From = 0.5 },
			"schedule.floor":       func(s *cage.ScheduleSettings) { s.Floor = 0.4 },
			"schedule.decay":       func(s *cage.ScheduleSettings) { s.Decay = 0.6 },
			"schedule.decay_shape": func(s *cage.ScheduleSettings) { s.Shape = cage.SquareDecay },
		} {
			other := base
			change(&other)
			a, b := base.Schedule(steps), other.Schedule(steps)
			differ := false
			for k := range steps {
				differ = differ || a.Rate(k) != b.Rate(k)
			}
			if idle := slices.Contains(other.Idle(), key); idle == differ {
				t.Errorf("%s: %s is named as without effect: %t, and changes rates: %t", kind, key, idle,
					differ)
			}
		}
	}
}
