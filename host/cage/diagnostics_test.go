package cage_test

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/cage-qat/cage/host/cage"
)

// TestCoherence checks residuals that stay, cancel, are zero, or are independent.
func TestCoherence(t *testing.T) {
	const n, window = 400, 64
	rng := rand.New(rand.NewPCG(1, 1))
	cases := map[string]struct {
		residual func(s, i int) float64
		want     float64 // ± 0.03
	}{
		"residuals that stay": {func(s, i int) float64 { return float64(i%7) - 2.5 }, 1},
		"that cancel":         {func(s, i int) float64 { return float64(1 - 2*(s%2)) }, 0},
		"zeros":               {func(s, i int) float64 { return 0 }, 0},
		// E|Σe| / E Σ|e| = √(2W/3π) / (W/2) for uniform residuals.
		"independent ones": {func(s, i int) float64 { return rng.Float64() - 0.5 },
			math.Sqrt(2*window/(3*math.Pi)) / 2 / (window / 4.0)},
	}
	for name, c := range cases {
		tr := cage.NewTracker(window, n)
		for s := range window {
			residuals := make([]float32, n)
			for i := range residuals {
				residuals[i] = float32(c.residual(s, i))
			}
			tr.Add(make([]int32, n), residuals)
		}
		m, _ := tr.Measure()
		if !(math.Abs(m.Coherence-c.want) < 0.03) {
			t.Errorf("%s: coherence %.3f, want about %.3f", name, m.Coherence, c.want)
		}
		if name == "independent ones" {
			c.want = 1 / math.Sqrt(window)
		}
		if !(math.Abs(m.VectorCoherence-c.want) < 0.03) {
			t.Errorf("%s: coherence of vectors %.3f, want about %.3f", name, m.VectorCoherence, c.want)
		}
	}
}

func TestLengths(t *testing.T) {
	tr := cage.NewTracker(10, 1)
	for _, code := range []int32{0, 0, 0, 0, 1, 2, 2, 3, 4, 4} { // visits of 4, 1, 2, 1, 2
		tr.Add([]int32{code}, []float32{0})
	}
	m, _ := tr.Measure()
	d := m.Dwell
	if d.Visits() != 5 || d.Mean() != 2 || d.Max() != 4 {
		t.Errorf("%d visits, mean %v, largest %d", d.Visits(), d.Mean(), d.Max())
	}
	for p, want := range map[float64]int{-1: 1, 0: 1, 0.4: 1, 0.41: 2, 0.5: 2, 0.8: 2, 0.81: 4, 1: 4,
		2: 4} {
		if got := d.Quantile(p); got != want {
			t.Errorf("the quantile %v is %d, want %d", p, got, want)
		}
	}
	if want := (cage.Lengths{1: 2, 2: 2, 4: 1}); !maps.Equal(d, want) {
		t.Errorf("lengths %v, want %v", d, want)
	}
	var none cage.Lengths
	if none.Mean() != 0 || none.Max() != 0 || none.Quantile(0.5) != 0 || none.Visits() != 0 {
		t.Error("there are lengths without visits")
	}
}

// TestNotFinite checks that a residual that is not finite affects only the measures of residuals,
// until its sample leaves the window.
func TestNotFinite(t *testing.T) {
	tr := cage.NewTracker(2, 1, 1)
	tr.Add([]int32{1, 1}, []float32{float32(math.NaN()), 1})
	m, groups := tr.Measure()
	for _, v := range []float64{m.Coherence, m.VectorCoherence, m.VisitSum, m.Residual,
		groups[0].Coherence} {
		if !math.IsNaN(v) {
			t.Errorf("a measure is %v", v)
		}
	}
	if groups[1].Coherence != 1 || m.FlipRate != 0 || m.Dwell.Mean() != 1 {
		t.Errorf("what does not depend on the residual: %+v", groups[1])
	}
	for range 2 {
		tr.Add([]int32{2, 2}, []float32{1, 1})
	}
	if m, _ := tr.Measure(); m.Coherence != 1 || m.VisitSum != 2 {
		t.Errorf("after its sample has left the window: %+v", m)
	}
}

func TestRefused(t *testing.T) {
	tr := cage.NewTracker(2, 2)
	if all, groups := tr.Measure(); all.Coordinates != 0 || len(groups) != 1 {
		t.Errorf("before the first sample: %+v, %+v", all, groups)
	}
	tr.Add([]int32{1, 2}, []float32{1, 2})
	state := tr.State()
	for name, spoil := range map[string]func(s *cage.TrackerState){
		"codes":               func(s *cage.TrackerState) { s.Codes = nil },
		"residuals":           func(s *cage.TrackerState) { s.Residuals = append(s.Residuals, 1) },
		"samples":             func(s *cage.TrackerState) { s.Samples = -1 },
		"sums of residuals":   func(s *cage.TrackerState) { s.Before = s.Before[:1] },
		"vector visits":       func(s *cage.TrackerState) { s.GroupSince = nil },
		"numbers of visits":   func(s *cage.TrackerState) { s.Begun = nil },
		"beginnings of visit": func(s *cage.TrackerState) { s.Since = nil },
	} {
		bad := state
		spoil(&bad)
		if err := tr.Restore(bad); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: a spoiled state is accepted, or its error names something else: %v", name, err)
		}
	}
	if tr.Samples() != 1 || tr.Full() {
		t.Errorf("a refused state has left %d samples", tr.Samples())
	}
}

func TestChoose(t *testing.T) {
	sizes := []int{1000, 3000, 0, 2, 6000}
	chosen := cage.ChooseCoordinates(7, 500, sizes...)
	total := 0
	for i, list := range chosen {
		total += len(list)
		if !slices.IsSorted(list) || len(slices.Compact(slices.Clone(list))) != len(list) {
			t.Errorf("tensor %d: positions are not ascending: %v", i, list)
		}
		if len(list) > 0 && (list[0] < 0 || int(list[len(list)-1]) >= sizes[i]) {
			t.Errorf("tensor %d: positions from %d to %d", i, list[0], list[len(list)-1])
		}
		if share := float64(500*sizes[i]) / 10002; math.Abs(float64(len(list))-share) >= 1 {
			t.Errorf("tensor %d: %d coordinates, its share is %.1f", i, len(list), share)
		}
	}
	if total != 500 {
		t.Errorf("%d coordinates", total)
	}
	if again := cage.ChooseCoordinates(7, 500, sizes...); !slices.EqualFunc(chosen, again,
		slices.Equal) {
		t.Error("one seed gives two choices")
	}
	if other := cage.ChooseCoordinates(8, 500, sizes...); slices.Equal(chosen[0], other[0]) {
		t.Error("two seeds give one choice")
	}
	if all := cage.ChooseCoordinates(1, 1000, 3, 4); len(all[0]) != 3 ||
		!slices.Equal(all[1], []int32{0, 1, 2, 3}) {
		t.Errorf("more than there are: %v", all)
	}
	if none := cage.ChooseCoordinates(1, -1, 3); len(none[0]) != 0 {
		t.Errorf("fewer than none: %v", none)
	}
}

// TestChooseIsUniform checks that every coordinate has the same probability.
func TestChooseIsUniform(t *testing.T) {
	counts := make([]int, 20)
	const draws = 20_000
	for seed := range uint64(draws) {
		for _, i := range cage.ChooseCoordinates(seed, 5, len(counts))[0] {
			counts[i]++
		}
	}
	const want = draws / 4.0
	for i, n := range counts {
		if !(math.Abs(float64(n)-want) <= 5*math.Sqrt(want*0.75)) {
			t.Errorf("coordinate %d was chosen %d times, want about %.0f", i, n, want)
		}
	}
}

func Example() {
	tr := cage.NewTracker(6, 2)
	codes := [][]int32{{1, 2}, {1, 2}, {1, 3}, {1, 3}, {1, 3}, {0, 3}}
	for _, c := range codes {
		tr.Add(c, []float32{0.25, -0.25})
	}
	m, _ := tr.Measure()
	fmt.Println("flip rate", m.FlipRate)
	fmt.Println("dwell times: mean", m.Dwell.Mean(), "largest", m.Dwell.Max())
	fmt.Println("coherence", m.Coherence)
	// Output:
	// flip rate 0.5
	// dwell times: mean 3 largest 5
	// coherence 1
}

// BenchmarkMeasure adds a sample and measures, at the default size, with a tenth of the codes
// changing.
func BenchmarkMeasure(b *testing.B) {
	const n, window, groups = 4096, 32, 28
	sizes := make([]int, groups)
	for i := range sizes {
		sizes[i] = n / groups
	}
	tr := cage.NewTracker(window, sizes...)
	rng := rand.New(rand.NewPCG(1, 1))
	codes, residuals := make([]int32, tr.Coordinates()), make([]float32, tr.Coordinates())
	for b.Loop() {
		for i := range codes {
			if rng.IntN(10) == 0 {
				codes[i]++
			}
		}
		tr.Add(codes, residuals)
		tr.Measure()
	}
}
