package rundir

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestDiff(t *testing.T) {
	some(t)
	l := list(t, "runs")
	got := Diff(l[0], l[1])
	want := []Difference{
		{"data.seed", []string{"1337", "2"}},
		{"quantizer.activations.bits", []string{"2", "3"}},
		{"quantizer.weights.bits", []string{"2", "3"}},
		{"seed", []string{"1", "2"}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	three := Varying([]*Run{l[0], l[1], l[4]}, 9)
	if want := []string{"data.seed", "method.form", "quantizer.bits"}; !cmp.Equal(three[:2], want[:2]) || !strings.Contains(strings.Join(three, " "), "quantizer.bits") {
		t.Errorf("what varies: %v, want %v", three, want)
	}
	if got := Varying(l[:1], 9); got != nil {
		t.Errorf("one run varies in %v", got)
	}
}

// TestVaryingOfUnlikeRuns: what differs between runs comes first, though another run has no such keys, and one that cannot
// be read counts for nothing.
func TestVaryingOfUnlikeRuns(t *testing.T) {
	run := func(state State, entries ...Entry) *Run { return &Run{State: state, config: entries} }
	model := []Entry{{"model.layers", "2"}, {"model.width", "32"}}
	two, three := run(Done, append(model, Entry{"quantizer.bits", "2"})...), run(Done, append(model, Entry{"quantizer.bits", "3"})...)
	if got := Varying([]*Run{two, three, run(Unreadable)}, 4); !cmp.Equal(got, []string{"quantizer.bits"}) {
		t.Errorf("beside an unreadable run vary %v", got)
	}
	if got := Varying([]*Run{two, three, run(Done, Entry{"model.kind", `"toy"`})}, 4); !cmp.Equal(got, []string{"quantizer.bits", "model.kind", "model.layers", "model.width"}) {
		t.Errorf("beside one of another kind vary %v", got)
	}
}
