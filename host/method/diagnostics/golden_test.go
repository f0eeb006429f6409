package diagnostics_test

import (
	"slices"
	"testing"

	"github.com/cage-qat/cage/host/method/diagnostics"
	"github.com/cage-qat/cage/internal/golden"
)

// TestGolden follows the two coordinates of the golden values once as one weight, and
// once as two, which shows the visits and the coherence of each.
func TestGolden(t *testing.T) {
	top := golden.Load(t, "testdata/cage.json").Top(t).Object("diagnostics")
	codes, residuals, want := top.Array("codes"), top.Array("residuals"), top.Object("expected")
	rows := codes.Shape[0]
	one, two := tracker(t, rows, 2), tracker(t, rows, 1, 1)
	for r := range rows {
		for _, tr := range []*diagnostics.Tracker{one, two} {
			add(t, tr, ints(codes.Row(r).Data), residuals.Row(r).Float32())
		}
	}
	all, _ := one.Measure()
	_, each := two.Measure()
	wantVisits := func(what string, got diagnostics.Lengths, want []float64) {
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
	// The residuals of a device are float32: 2⁻²⁴ of each, and of sums of six.
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

// lengths lists the lengths of visits, ascending.
func lengths(l diagnostics.Lengths) []int32 {
	var out []int32
	for length, visits := range l.Counts() {
		out = append(out, slices.Repeat([]int32{int32(length)}, visits)...)
	}
	return out
}

func tracker(t testing.TB, window int, groups ...int) *diagnostics.Tracker {
	t.Helper()
	tr, err := diagnostics.New(window, groups...)
	if err != nil {
		t.Fatal(err)
	}
	return tr
}

func add(t testing.TB, tr *diagnostics.Tracker, codes []int32, residuals []float32) {
	t.Helper()
	if err := tr.Add(codes, residuals); err != nil {
		t.Fatal(err)
	}
}
