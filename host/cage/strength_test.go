package cage_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/cage-qat/cage/host/cage"
)

// TestResolvedStrength checks that the strength is the same for every schedule, length, silence,
// ramp and variant, and the removed share of the error nearly so.
func TestResolvedStrength(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 500 {
		kind := cage.ScheduleKinds[random.IntN(len(cage.ScheduleKinds))]
		rates := cage.DefaultSchedule(kind, math.Pow(10, -6+5*random.Float64()), 20+random.IntN(2000))
		s := 2 * random.Float64()
		m := cage.Default
		m.Strength, m.Silence = &s, 0.95*random.Float64()
		m.Variant = []cage.Variant{cage.Paper, cage.Official}[random.IntN(2)]
		m.Ramp = []cage.Ramp{cage.Linear, cage.Constant}[random.IntN(2)]
		resolved := m.Resolve(rates)
		p := resolved.Pull(rates)
		if !(math.Abs(p.Strength-s) <= 1e-12*s) {
			t.Fatalf("%+v with %+v: strength %v, want %v", m, rates, p.Strength, s)
		}
		// 1 − Π(1 − a_t) is above 1 − e^(−Σa_t), and approaches it as the largest a_t approaches 0.
		least := 1 - math.Exp(-s)
		if p.Largest < 1 && (p.Removed < least-1e-12 || p.Removed > least+s*p.Largest) {
			t.Fatalf("%+v with %+v: removes %v of the error, S = %v removes at least %v",
				m, rates, p.Removed, s, least)
		}
	}
}

func TestResolveOfNothing(t *testing.T) {
	rates := cage.DefaultSchedule(cage.Cosine, 1e-3, 100)
	configured := cage.Default
	if got := configured.Resolve(rates); got != configured {
		t.Errorf("without a strength %+v becomes %+v", configured, got)
	}
	zero, some := 0.0, 0.24
	m := cage.Default
	m.Strength = &zero
	if got := m.Resolve(rates).Lambda; got != 0 {
		t.Errorf("λ = %v for the strength 0", got)
	}
	m.Strength = &some
	rates.Peak = 0
	if got := m.Resolve(rates).Lambda; !math.IsInf(got, 1) {
		t.Errorf("λ = %v with a rate of 0", got)
	}
}

// TestDefaultStrength checks that the default is the strength of the paper's λ and s in its
// pre-training of 50M to 800M parameters.
func TestDefaultStrength(t *testing.T) {
	for _, run := range []struct {
		rate          float64
		steps, warmup int
	}{{0.0012, 19073, 1907}, {7.5e-5, 305175, 30517}} {
		settings := cage.ScheduleSettings{Kind: cage.OneCycleCos, Rate: run.rate,
			Warmup: float64(run.warmup), From: 0.01, Floor: 0.1}
		p := cage.Default.Pull(settings.Schedule(run.steps))
		if want := cage.DefaultStrength(run.steps); !(math.Abs(p.Strength-want) <= 0.005) {
			t.Errorf("%+v has the strength %v, want %v", run, p.Strength, want)
		}
	}
	whole := cage.DefaultStrength(0) // of an unknown length
	for steps, share := range map[int]float64{1000: 1, 5000: 1, 500: 0.5, 1: 0.001} {
		if got := cage.DefaultStrength(steps); got != whole*share {
			t.Errorf("the default for %d steps is %v, want %v of %v", steps, got, share, whole)
		}
	}
}
