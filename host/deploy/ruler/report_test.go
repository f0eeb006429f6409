package ruler

import (
	"slices"
	"strings"
	"testing"

	"github.com/cage-qat/cage/host/deploy/tasks"
)

// results returns results of one task at the lengths 1000, 2000, …
func results(scores ...float64) (lengths []int, list []*tasks.Result) {
	for i, s := range scores {
		lengths = append(lengths, (i+1)*1000)
		list = append(list, &tasks.Result{Metrics: []tasks.Metric{{Value: s}}})
	}
	return lengths, list
}

// TestEffectiveLength compares averages and the effective length with a computation by hand. A
// length is effective if its average exceeds the threshold, not if it is equal.
func TestEffectiveLength(t *testing.T) {
	for _, c := range []struct {
		scores                          []float64
		average, increasing, decreasing float64
		effective                       int
		says                            string
	}{
		{[]float64{1}, 100, 100, 100, 1000, "effective length: 1000 at least, the longest tried"},
		{[]float64{0}, 0, 0, 0, 0, "effective length: below 1000"},
		{[]float64{1, 1, 0}, 200.0 / 3, 50, 250.0 / 3, 2000, "effective length: 2000 (the longest"},
		{[]float64{1, 0, 1}, 200.0 / 3, 200.0 / 3, 200.0 / 3, 3000, "effective length: 3000 at least"},
		{[]float64{0.856}, 85.6, 85.6, 85.6, 0, "effective length: below 1000"},
		{[]float64{0.85606}, 85.61, 85.61, 85.61, 1000, "effective length: 1000 at least"},
	} {
		lengths, list := results(c.scores...)
		r := NewReport(selected(t, []string{"vt"}), lengths, list)
		if !near(r.Average, c.average) || !near(r.Increasing, c.increasing) ||
			!near(r.Decreasing, c.decreasing) || r.Effective != c.effective {
			t.Errorf("%v: averages %v, %v, %v, effective length %d; want %v", c.scores, r.Average,
				r.Increasing, r.Decreasing, r.Effective, c)
		}
		if !strings.Contains(r.Words(), c.says) {
			t.Errorf("%v: the report says\n%s\nwant %q", c.scores, r.Words(), c.says)
		}
	}
}

// near allows for the rounding errors of a few sums of numbers up to 100.
func near(a, b float64) bool { return a-b < 1e-12 && b-a < 1e-12 }

// TestLeftOut checks that tasks without an input are named.
func TestLeftOut(t *testing.T) {
	_, inputs := readGolden(t)
	inputs.Essay, inputs.Squad = "", nil
	given, others := inputs.LeftOut(
		selected(t, []string{"fwe", "niah_single_2", "niah_single_3", "qa_1"}))
	if len(given) != 1 || given[0].Name != "fwe" ||
		others != "qa_1 (without SQuAD); niah_single_2, niah_single_3 (without an essay)" {
		t.Errorf("given are %v, left out %q", given, others)
	}
	lengths, list := results(1)
	r := NewReport(given, lengths, list, "left out: "+others)
	if want := []string{"left out: " + others, "averages are over 1 of 13 tasks"}; !slices.Equal(
		r.Notes, want) {
		t.Errorf("the notes are %q, want %q", r.Notes, want)
	}
}
