package scaling

import (
	"context"
	"math"
	"math/rand/v2"
	"reflect"
	"runtime"
	"strings"
	"testing"

	"github.com/cage-qat/cage/internal/testing/testlevel"
)

// planted is a known law with efficiencies, from which synthetic losses are made.
type planted struct {
	law  Law
	effs map[Group]float64
}

// truth draws a plausible law for language models: at 1e8 parameters and 1e10 tokens, the terms are
// 0.5 to 2, 0.2 to 1 and 0.3 to 1.8 nats.
func truth(random *rand.Rand) planted {
	between := func(low, high float64) float64 { return low + (high-low)*random.Float64() }
	p := planted{effs: map[Group]float64{{"BF16", 16}: 1}}
	p.law.Alpha, p.law.Beta, p.law.E = between(0.15, 0.5), between(0.2, 0.5), between(0.3, 1.8)
	p.law.A = between(0.5, 2) * math.Pow(1e8, p.law.Alpha)
	p.law.B = between(0.2, 1) * math.Pow(1e10, p.law.Beta)
	for _, method := range []string{"CAGE", "QuEST"} {
		p.effs[Group{method, 2}] = between(0.1, 0.5)
		p.effs[Group{method, 4}] = between(0.5, 0.95)
	}
	return p
}

// synthesize returns losses on a grid of sizes and tokens per parameter, with noise of the given
// standard deviation in the log-loss.
func synthesize(random *rand.Rand, p planted, sizes, ratios []float64, noise float64) []Point {
	var points []Point
	for _, g := range []Group{{"BF16", 16}, {"CAGE", 4}, {"QuEST", 4}, {"CAGE", 2}, {"QuEST", 2}} {
		for _, n := range sizes {
			for _, ratio := range ratios {
				loss := p.law.Loss(n, ratio*n, p.effs[g]) * math.Exp(noise*random.NormFloat64())
				points = append(points, Point{Group: g, N: n, D: ratio * n, Loss: loss})
			}
		}
	}
	return points
}

// wide returns losses of a random law, at sizes and ratios that determine it.
func wide(seed uint64, noise float64) []Point {
	random := rand.New(rand.NewPCG(seed, seed))
	return synthesize(random, truth(random), wideSizes, wideRatios, noise)
}

var (
	wideSizes  = []float64{10e6, 50e6, 250e6, 1250e6}
	wideRatios = []float64{10, 60, 360}
)

func fitOrFail(t testing.TB, points []Point, o Options) *Fit {
	t.Helper()
	fit, err := Run(context.Background(), points, o)
	if err != nil {
		t.Fatal(err)
	}
	return fit
}

// TestPlantedIsFoundExactly checks that without noise, fits with both losses find the planted law.
func TestPlantedIsFoundExactly(t *testing.T) {
	testlevel.Long(t, "fits many times")
	for seed := range uint64(2) {
		random := rand.New(rand.NewPCG(seed, 1))
		p := truth(random)
		points := synthesize(random, p, wideSizes, wideRatios, 0)
		for _, huber := range []float64{0, 1e-3} {
			fit := fitOrFail(t, points, Options{Huber: huber})
			for j, want := range []float64{p.law.A, p.law.Alpha, p.law.B, p.law.Beta, p.law.E} {
				if got := fit.Parameters[j].Value; math.Abs(got/want-1) > 1e-4 {
					t.Errorf("seed %d: %s = %v, want %v", seed, names[j], got, want)
				}
			}
			for _, e := range fit.Effs {
				if want := p.effs[e.Group]; math.Abs(e.Value/want-1) > 1e-5 {
					t.Errorf("seed %d: %s = %v, want %v", seed, e.Name, e.Value, want)
				}
			}
			if len(fit.Warnings) > 0 {
				t.Errorf("seed %d: warnings %q", seed, fit.Warnings)
			}
		}
	}
}

// TestPlantedIsFoundWithinIntervals checks, with noise of 0.1 % of the loss, that intervals contain
// the planted values about as often as they should, and that efficiencies are close.
func TestPlantedIsFoundWithinIntervals(t *testing.T) {
	testlevel.Long(t, "fits with bootstraps")
	const draws = 5
	for _, replicates := range []int{100, 0} { // 0: intervals of the linearized law
		inside, all := 0, 0
		for seed := range uint64(draws) {
			random := rand.New(rand.NewPCG(seed, 2))
			p := truth(random)
			o := Defaults()
			o.Bootstrap, o.Seed = replicates, seed
			fit := fitOrFail(t, synthesize(random, p, wideSizes, wideRatios, 1e-3), o)
			check := func(e Estimate, want float64) {
				all++
				if e.Low <= want && want <= e.High {
					inside++
				}
				if !(e.Low <= e.Value && e.Value <= e.High) || e.Status != Fitted {
					t.Errorf("%d replicates, seed %d: %+v", replicates, seed, e)
				}
			}
			for j, want := range []float64{p.law.A, p.law.Alpha, p.law.B, p.law.Beta, p.law.E} {
				check(fit.Parameters[j], want)
			}
			for _, e := range fit.Effs[1:] {
				check(e.Estimate, p.effs[e.Group])
				if math.Abs(e.Value-p.effs[e.Group]) > 0.02 {
					t.Errorf("%d replicates, seed %d: %s = %.4f, planted was %.4f", replicates, seed, e.Name,
						e.Value, p.effs[e.Group])
				}
			}
		}
		// The parameters of a draw are found or missed together, so with so few draws, somewhat less than
		// 95 % is no surprise.
		t.Logf("%d replicates: %d of %d planted values lie in their 95 %% intervals", replicates, inside,
			all)
		if inside < all*85/100 {
			t.Errorf("%d replicates: only %d of %d planted values lie in their 95 %% intervals", replicates,
				inside, all)
		}
	}
}

// TestDeterministic checks that the same arguments give the same bits with any number of workers.
func TestDeterministic(t *testing.T) {
	testlevel.Long(t, "fits several times")
	random := rand.New(rand.NewPCG(5, 5))
	points := synthesize(random, truth(random), wideSizes[:3], wideRatios[:2], 1e-3)
	var first *Fit
	for _, workers := range []int{1, 3, 8} {
		o := Defaults()
		o.Bootstrap, o.Baseline = 20, "QuEST"
		defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(workers))
		fit := fitOrFail(t, points, o)
		if first == nil {
			first = fit
		}
		if !reflect.DeepEqual(fit, first) {
			t.Errorf("%d workers give another fit", workers)
		}
	}
	o := Defaults()
	o.Bootstrap, o.Seed = 20, 1
	if fit := fitOrFail(t, points, o); fit.Effs[1].Value != first.Effs[1].Value ||
		fit.Effs[1].Low == first.Effs[1].Low {
		t.Error("the seed must change the intervals and nothing else")
	}
}

// TestFixedLawAndInversion checks that if the law is given, one point determines an efficiency.
func TestFixedLawAndInversion(t *testing.T) {
	random := rand.New(rand.NewPCG(6, 6))
	p := truth(random)
	n, d, g := 3e8, 2e10, Group{"CAGE", 4}
	loss := p.law.Loss(n, d, p.effs[g])
	fixed := map[string]float64{"A": p.law.A, "alpha": p.law.Alpha, "B": p.law.B, "beta": p.law.Beta,
		"E": p.law.E}
	fit := fitOrFail(t, []Point{{Group: g, N: n, D: d, Loss: loss}}, Options{Fixed: fixed})
	if fit.Reference != nil || math.Abs(fit.Effs[0].Value-p.effs[g]) > 1e-9 || fit.Law != p.law {
		t.Errorf("%+v, planted was %v", fit.Effs[0], p.effs[g])
	}
	if got := p.law.invert(n, loss, p.law.Loss(n, d, 1)); math.Abs(got-p.effs[g]) > 1e-9 {
		t.Errorf("inverted %v, planted was %v", got, p.effs[g])
	}
	if got := p.law.invert(n, 0.1, 9); !math.IsInf(got, 1) {
		t.Errorf("a loss that no size explains gives %v", got)
	}
}

// TestNoIntervalWithoutKnowledge checks that parameters have no misleading interval if there are no
// more points than parameters, or if the priors determine them.
func TestNoIntervalWithoutKnowledge(t *testing.T) {
	testlevel.Long(t, "fits several times")
	random := rand.New(rand.NewPCG(9, 9))
	points := synthesize(random, truth(random), wideSizes, wideRatios, 1e-3)
	var nine []Point // as many as parameters
	for _, from := range []int{0, 1, 4, 8, 11, 12, 24, 36, 48} {
		nine = append(nine, points[from])
	}
	for _, replicates := range []int{0, 20} {
		o := Defaults()
		o.Bootstrap = replicates
		fit := fitOrFail(t, nine, o)
		for _, e := range append(fit.Parameters, fit.Effs[1].Estimate) {
			if e.Low != e.Value || e.High != e.Value || e.StdErr != 0 {
				t.Errorf("nine points, %d replicates: %+v", replicates, e)
			}
		}
		if len(fit.Warnings) == 0 ||
			!strings.HasPrefix(fit.Warnings[0], "9 points for as many parameters") {
			t.Errorf("warnings %q", fit.Warnings)
		}
		oneSize := fitOrFail(t, synthesize(random, truth(random), wideSizes[:1], wideRatios, 1e-3), o)
		if e := oneSize.Parameters[atAlpha]; e.Status != Undetermined || e.Low != e.Value ||
			e.High != e.Value {
			t.Errorf("one size, %d replicates: %+v", replicates, e)
		}
		if all := strings.Join(oneSize.Warnings, "\n"); !strings.Contains(all,
			"without an interval, because the prior determines it more than the points do, or nothing "+
				"does: A, alpha, E, eff(CAGE") {
			t.Errorf("warnings %q", all)
		}
	}
}

// BenchmarkRun fits 60 points from all starting points, without a bootstrap, on as many cores as Go
// uses.
func BenchmarkRun(b *testing.B) {
	points := wide(1, 1e-3)
	o := Defaults()
	o.Bootstrap = 0
	for b.Loop() {
		fitOrFail(b, points, o)
	}
}
