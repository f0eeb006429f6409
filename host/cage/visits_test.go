package cage_test

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/cage-qat/cage/host/cage"
	"github.com/cage-qat/cage/internal/testing/golden"
)

// history holds all samples. The measures are computed from it literally as defined.
type history struct {
	groups    []int
	codes     [][]int32
	residuals [][]float32
}

// visit is a maximal range [from, to) of samples in which same holds for consecutive samples.
type visit struct{ from, to int }

func visitsOf(samples int, same func(a, b int) bool) []visit {
	list := []visit{{0, 1}}
	for t := 1; t < samples; t++ {
		if last := &list[len(list)-1]; same(t-1, t) {
			last.to++
		} else {
			list = append(list, visit{t, t + 1})
		}
	}
	return list
}

// group returns the measures of the coordinates [from, to) as one group over the last window
// samples.
func (h history) group(window, from, to int) definition {
	n := len(h.codes)
	first := max(0, n-window)
	var d definition
	for i := from; i < to; i++ {
		list := visitsOf(n, func(a, b int) bool { return h.codes[a][i] == h.codes[b][i] })
		d.visits += float64(len(list)) / float64(to-from)
		for _, v := range list {
			if v.to > first {
				d.dwell = append(d.dwell, int32(v.to-v.from))
			}
		}
		if n > 1 && h.codes[n-1][i] != h.codes[n-2][i] {
			d.flipRate += 1 / float64(to-from)
		}
		sum, absolute := 0.0, 0.0
		for t := first; t < n; t++ {
			sum += float64(h.residuals[t][i])
			absolute += math.Abs(float64(h.residuals[t][i]))
		}
		if absolute > 0 {
			d.coherence += math.Abs(sum) / absolute / float64(to-from)
		}
	}
	d.vectorCoherence = h.vectorCoherence(first, from, to)
	for _, v := range visitsOf(n,
		func(a, b int) bool { return slices.Equal(h.codes[a][from:to], h.codes[b][from:to]) }) {
		if v.to > first {
			d.vectorDwell = append(d.vectorDwell, int32(v.to-v.from))
			d.visitSum = max(d.visitSum, h.norm(v.from, v.to, from, to))
		}
	}
	for t := first; t < n; t++ {
		d.residual = max(d.residual, h.norm(t, t+1, from, to))
	}
	return d
}

func (h history) vectorCoherence(first, from, to int) float64 {
	norms := 0.0
	for t := first; t < len(h.codes); t++ {
		norms += h.norm(t, t+1, from, to)
	}
	if norms == 0 {
		return 0
	}
	return h.norm(first, len(h.codes), from, to) / norms
}

// norm returns the norm of the sum of the residuals of the samples [t0, t1).
func (h history) norm(t0, t1, from, to int) float64 {
	total := 0.0
	for i := from; i < to; i++ {
		sum := 0.0
		for t := t0; t < t1; t++ {
			sum += float64(h.residuals[t][i])
		}
		total += sum * sum
	}
	return math.Sqrt(total)
}

type definition struct {
	flipRate, coherence, vectorCoherence, visits, visitSum, residual float64
	dwell, vectorDwell                                               []int32
}

func (d definition) compare(t *testing.T, what string, m cage.Measures) {
	t.Helper()
	for name, pair := range map[string][2]float64{
		"flip rate": {m.FlipRate, d.flipRate}, "coherence": {m.Coherence, d.coherence},
		"vector coherence": {m.VectorCoherence, d.vectorCoherence},
		"visits":           {m.Visits, d.visits}, "visit sum": {m.VisitSum, d.visitSum},
		"residual": {m.Residual, d.residual},
	} {
		// Sums of some hundred terms in another order differ by some hundred times 2⁻⁵³.
		if got, want := pair[0], pair[1]; !(math.Abs(got-want) <= 1e-12*(1+math.Abs(want))) {
			t.Fatalf("%s: %s %v, by definition %v", what, name, got, want)
		}
	}
	for name, pair := range map[string][2][]int32{"visits": {lengths(m.Dwell), d.dwell},
		"vector visits": {lengths(m.VectorDwell), d.vectorDwell}} {
		if got, want := pair[0], slices.Sorted(slices.Values(pair[1])); !slices.Equal(got, want) {
			t.Fatalf("%s: %s of %v samples, by definition %v", what, name, got, want)
		}
	}
}

// walk returns a random history: codes of a coordinate stay with its own probability, some
// residuals are 0, those of one coordinate always.
func walk(rng *rand.Rand, samples int, groups ...int) history {
	h := history{groups: groups}
	n := 0
	for _, size := range groups {
		n += size
	}
	stay := make([]float64, n)
	for i := range stay {
		stay[i] = 1 - math.Pow(rng.Float64(), 3)
	}
	quiet := rng.IntN(n)
	for t := range samples {
		codes, residuals := make([]int32, n), make([]float32, n)
		for i := range n {
			if t > 0 && rng.Float64() < stay[i] {
				codes[i] = h.codes[t-1][i]
			} else {
				codes[i] = int32(rng.IntN(3) - 1)
			}
			if i != quiet && rng.IntN(5) > 0 {
				residuals[i] = float32(rng.NormFloat64())
			}
		}
		h.codes, h.residuals = append(h.codes, codes), append(h.residuals, residuals)
	}
	return h
}

// upTo returns the history of the first n samples.
func (h history) upTo(n int) history { return history{h.groups, h.codes[:n], h.residuals[:n]} }

// check compares the measures of a tracker that was given h with their definition.
func (h history) check(t *testing.T, tr *cage.Tracker) {
	t.Helper()
	all, groups := tr.Measure()
	from := 0
	total := definition{}
	for g, size := range h.groups {
		what := fmt.Sprintf("sample %d, group %d", len(h.codes), g)
		d := h.group(tr.Window(), from, from+size)
		d.compare(t, what, groups[g])
		total.vectorDwell = append(total.vectorDwell, d.vectorDwell...)
		total.visitSum, total.residual = max(total.visitSum, d.visitSum), max(total.residual, d.residual)
		from += size
	}
	// All together are one group, except for vector visits and norms, which each group has.
	together := h.group(tr.Window(), 0, from)
	together.vectorDwell, together.visitSum, together.residual = total.vectorDwell, total.visitSum,
		total.residual
	together.compare(t, fmt.Sprintf("sample %d, all", len(h.codes)), all)
}

func TestMeasuresAreAsDefined(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 30 {
		h := walk(rng, 2+rng.IntN(40), 1+rng.IntN(4), 1+rng.IntN(3), 1)
		tr := cage.NewTracker(2+rng.IntN(12), h.groups...)
		for s := range h.codes {
			tr.Add(h.codes[s], h.residuals[s])
			h.upTo(s+1).check(t, tr)
		}
	}
}

// TestVisitSumsAreBounded checks the paper's Lemma on block increments: a visit's sum is at most B
// times its length, with B over all samples.
func TestVisitSumsAreBounded(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for range 20 {
		h := walk(rng, 40, 2, 1)
		tr := cage.NewTracker(40, h.groups...)
		for s := range h.codes {
			tr.Add(h.codes[s], h.residuals[s])
		}
		_, groups := tr.Measure()
		for _, m := range groups {
			if bound := m.Residual * float64(m.VectorDwell.Max()); m.VisitSum > bound*(1+1e-12) {
				t.Errorf("a visit's residuals add up to %v, more than B·L = %v", m.VisitSum, bound)
			}
		}
	}
}

// TestRestore checks that a tracker restored from a state gives the same bits as one that was never
// interrupted, after any sample.
func TestRestore(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	for range 20 {
		h := walk(rng, 30, 3, 2)
		window := 2 + rng.IntN(20)
		whole, parts := cage.NewTracker(window, h.groups...), cage.NewTracker(window, h.groups...)
		for s := range h.codes {
			whole.Add(h.codes[s], h.residuals[s])
			parts.Add(h.codes[s], h.residuals[s])
			if rng.IntN(3) == 0 {
				state := parts.State()
				parts = cage.NewTracker(window, h.groups...)
				parts.Add(h.codes[0], h.residuals[0]) // discarded by Restore
				if err := parts.Restore(state); err != nil {
					t.Fatal(err)
				}
			}
			a, ga := whole.Measure()
			b, gb := parts.Measure()
			if got, want := fmt.Sprintf("%b %v", b, gb), fmt.Sprintf("%b %v", a, ga); got != want {
				t.Fatalf("after sample %d: %s, uninterrupted %s", s, got, want)
			}
		}
	}
}

// TestGolden checks the two coordinates of the golden values as one group, and as two groups for
// the visits and the coherence of each.
func TestGolden(t *testing.T) {
	top := golden.Load(t, "testdata/diagnostics.json").Top(t).Object("diagnostics")
	codes, residuals, want := top.Array("codes"), top.Array("residuals"), top.Object("expected")
	rows := codes.Shape[0]
	one, two := cage.NewTracker(rows, 2), cage.NewTracker(rows, 1, 1)
	for r := range rows {
		for _, tr := range []*cage.Tracker{one, two} {
			tr.Add(ints(codes.Row(r).Data), residuals.Row(r).Float32())
		}
	}
	all, _ := one.Measure()
	_, each := two.Measure()
	wantVisits := func(what string, got cage.Lengths, want []float64) {
		t.Helper()
		if got := lengths(got); !slices.Equal(got, slices.Sorted(slices.Values(ints(want)))) {
			t.Errorf("%s: visits of %v samples, want %v", what, got, want)
		}
	}
	wantVisits("vector", all.VectorDwell, want.Array("vector_visits").Data)
	var coherence []float64
	for i, visits := range want.Lists("coordinate_visits") {
		wantVisits("coordinate", each[i].Dwell, visits)
		coherence = append(coherence, each[i].Coherence)
	}
	// The residuals of a device are float32, with errors of 2⁻²⁴, and sums have six of them.
	single := golden.Tolerance{Rel: 1e-6}
	want.CloseWithin(single, "coordinate_coherence", coherence)
	want.CloseWithin(single, "vector_coherence", []float64{all.VectorCoherence})
}

func ints(v []float64) []int32 {
	out := make([]int32, len(v))
	for i, x := range v {
		out[i] = int32(x)
	}
	return out
}

// lengths returns the lengths of visits, ascending.
func lengths(l cage.Lengths) []int32 {
	var out []int32
	for _, length := range slices.Sorted(maps.Keys(l)) {
		out = append(out, slices.Repeat([]int32{int32(length)}, l[length])...)
	}
	return out
}
