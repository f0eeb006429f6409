package rundir

import (
	"fmt"
	"math"
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cage-qat/cage/internal/lists"
)

func TestConditions(t *testing.T) {
	some(t)
	all := list(t, "runs")
	for text, want := range map[string]string{
		"quantizer.bits=4":           "d c",
		"quantizer.bits = 4.0":       "d c",
		"quantizer.weights.bits>=3":  "b d c e",
		"val_loss<3":                 "b c",
		"val_loss<=3":                "a b c",
		"val_loss != 3":              "b c e",
		"seed>2":                     "c",
		"state==interrupted":         "d",
		"state=done":                 "a b c e",
		"state!=done":                "broken d",
		"run~deep":                   "c",
		`method.form="off"`:          "c",
		"method.form=off":            "c",
		"quantizer.weights.plugin>b": "a b c",
		"train_loss>4":               "d",
		"schedule.rate=3e-3":         "a b d c e",
	} {
		c, err := ParseCondition(text)
		if err != nil {
			t.Error(err)
			continue
		}
		if got := dirs(Filter(all, []Condition{c})); got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
	a, _ := ParseCondition("val_loss<3")
	b, _ := ParseCondition("seed=2")
	if got := dirs(Filter(all, []Condition{a, b})); got != "b" {
		t.Errorf("both: %s", got)
	}
	for _, text := range []string{"", "seed", "=3", "<3", "!"} {
		if c, err := ParseCondition(text); err == nil {
			t.Errorf("%q is %+v", text, c)
		}
	}
}

func TestSort(t *testing.T) {
	some(t)
	for by, want := range map[string]string{
		"run":       "a b broken d c e",
		"val_loss":  "c b a e broken d",
		"-val_loss": "a b c e broken d",
		"seed":      "d e a b c broken", // as numbers
		"-seed":     "c b a d e broken",
	} {
		l := list(t, "runs")
		Sort(l, by)
		if got := dirs(l); got != want {
			t.Errorf("by %s: %s, want %s", by, got, want)
		}
	}
}

// TestSortNotANumber checks that runs with NaN come after those with numbers, in both directions
// and from any previous order.
func TestSortNotANumber(t *testing.T) {
	t.Chdir(t.TempDir())
	for name, loss := range map[string]float64{"a": math.NaN(), "b": 3, "c": math.NaN(), "d": 2} {
		fake(t, "runs/"+name, loss, 0)
	}
	for by, want := range map[string]string{"val_loss": "d b a c", "-val_loss": "b d a c"} {
		l := list(t, "runs")
		Sort(l, by)
		if got := dirs(l); got != want {
			t.Errorf("by %s: %s, want %s", by, got, want)
		}
	}
}

// TestSortNumbersAndTexts checks that the order of numbers and texts does not depend on the
// previous order.
func TestSortNumbersAndTexts(t *testing.T) {
	run := func(bits string) *Run { return &Run{Dir: bits, config: []Entry{{"bits", bits}}} }
	for _, before := range []string{"5x 9 10", "10 5x 9", "9 10 5x"} {
		l := lists.Map(strings.Fields(before), run)
		Sort(l, "bits")
		got := strings.Join(lists.Map(l, func(r *Run) string { return r.Dir }), " ")
		if want := "9 10 5x"; got != want {
			t.Errorf("%s is sorted as %s, want %s", before, got, want)
		}
	}
}

// TestTablesOfOtherRoles checks that only the settings that weights and activations share are
// listed for both, and not the tables of other roles.
func TestTablesOfOtherRoles(t *testing.T) {
	t.Chdir(t.TempDir())
	config := "[quantizer]\nplugin = \"quest\"\n[quantizer.keys]\nplugin = \"kivi\"\n" +
		"[[quantizer.overrides]]\nplugin = \"none\"\n"
	if err := os.WriteFile("run.toml", []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	r, err := Open(".")
	if err != nil {
		t.Fatal(err)
	}
	want := []Entry{{"quantizer.activations.plugin", `"quest"`}, {"quantizer.keys.plugin", `"kivi"`},
		{"quantizer.overrides[0].plugin", `"none"`}, {"quantizer.weights.plugin", `"quest"`}}
	if diff := cmp.Diff(want, r.Config()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestVarying(t *testing.T) {
	some(t)
	l := list(t, "runs")
	got := differing(l[:2])
	want := map[string][]string{
		"data.seed":                  {"1337", "2"},
		"quantizer.activations.bits": {"2", "3"},
		"quantizer.weights.bits":     {"2", "3"},
		"seed":                       {"1", "2"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	three := Varying([]*Run{l[0], l[1], l[4]}, 9)
	if want := []string{"method.form", "data.seed", "quantizer.bits"}; !cmp.Equal(three[:2],
		want[:2]) || !strings.Contains(strings.Join(three, " "), "quantizer.bits") {
		t.Errorf("what varies: %v, want %v", three, want)
	}
	if got := Varying(l[:1], 9); got != nil {
		t.Errorf("one run varies in %v", got)
	}
}

// TestVaryingOfUnlikeRuns checks that keys with different values come first, even if another run
// lacks them, and that unreadable runs do not count.
func TestVaryingOfUnlikeRuns(t *testing.T) {
	run := func(state State, entries ...Entry) *Run { return &Run{State: state, config: entries} }
	model := []Entry{{"model.layers", "2"}, {"model.width", "32"}}
	two, three := run(Done, append(model, Entry{"quantizer.bits", "2"})...),
		run(Done, append(model, Entry{"quantizer.bits", "3"})...)
	if got := Varying([]*Run{two, three, run(Unreadable)}, 4); !cmp.Equal(got,
		[]string{"quantizer.bits"}) {
		t.Errorf("beside an unreadable run vary %v", got)
	}
	if got := Varying([]*Run{two, three, run(Done, Entry{"model.kind", `"toy"`})}, 4); !cmp.Equal(got,
		[]string{"quantizer.bits", "model.kind", "model.layers", "model.width"}) {
		t.Errorf("beside one of another kind vary %v", got)
	}
}

// TestVaryingOfManyKeys checks that time and memory are linear in the number of keys: comparing
// each of the 88,000 keys with all others would take too long.
func TestVaryingOfManyKeys(t *testing.T) {
	list := make([]*Run, 21)
	for i := range list {
		r := &Run{State: Done, config: []Entry{{"bits", strconv.Itoa(i % 4)}, {"seed", strconv.Itoa(i)}}}
		for k := range 3_000 {
			r.config = append(r.config,
				Entry{fmt.Sprintf("x.k%05d", k), strconv.Itoa((k + 7) * (i + 3) % 257)})
		}
		list[i] = r
	}
	for k := range 25_000 {
		list[20].config = append(list[20].config, Entry{fmt.Sprintf("y.k%06d", k), "1"})
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	got := Varying(list, 4)
	runtime.ReadMemStats(&after)
	if !cmp.Equal(got, []string{"bits", "seed", "x.k00000", "x.k00001"}) {
		t.Errorf("%v vary", got)
	}
	if used := after.TotalAlloc - before.TotalAlloc; used > 26<<20 {
		t.Errorf("%d bytes are allocated", used)
	}
}
