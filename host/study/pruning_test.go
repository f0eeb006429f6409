package study_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cage-qat/cage/host/study"
)

const rates = `
[[study.axes]]
name = "rate"
key = "schedule.rate"
values = [0.001, 0.002, 0.004]

[[study.tables]]
rows = ["method"]
over = ["seed"]
best = {axis = "rate", on = {seed = ["0"]}, spare = true}
`

// loses is a command that only writes losses: without a correction, the best rate is 0.002, and
// with it 0.001.
const loses = `d="$(dirname "$0")"; rate=$(sed -n 's/^rate = //p' "$0")
best=0.001; grep -q '^form = "off"' "$0" && best=0.002
loss=2; [ "$rate" = "$best" ] && loss=1
echo "{\"completed\": true, \"val_loss\": $loss}" > "$d/summary.json"`

// TestSpare checks that seed 1 is trained only at the rate that was chosen on seed 0.
func TestSpare(t *testing.T) {
	s := tiny(t, rates)
	o := study.RunOptions{Command: []string{"sh", "-c", loses}}
	plan, err := s.Plan(t.Context(), o)
	if err != nil || len(plan.Run) != 6 || len(plan.Waiting) != 2 || len(plan.Results) != 8 {
		t.Fatalf("%d cells to run, %d waiting, of %d, %v; want 6, 2 and 8", len(plan.Run),
			len(plan.Waiting), len(plan.Results), err)
	}
	out, err := run(t, s, o)
	if want := (study.Outcome{Cells: 8, Done: 8, Trained: 8}); err != nil || out != want {
		t.Fatalf("%+v, %v, want %+v", out, err, want)
	}
	want := []string{"CAGE · 0 · 0.001", "CAGE · 0 · 0.002", "CAGE · 0 · 0.004", "CAGE · 1 · 0.001",
		"STE · 0 · 0.001", "STE · 0 · 0.002", "STE · 0 · 0.004", "STE · 1 · 0.002"}
	if diff := cmp.Diff(want, done(t, s)); diff != "" {
		t.Errorf("done (-want +got):\n%s", diff)
	}
	if got := study.Count(s.Needed(results(t, s))); got.Cells != 8 {
		t.Errorf("%d cells are wanted", got.Cells)
	}
	if out, err = run(t, s, o); err != nil || out.Trained != 0 {
		t.Errorf("again: %+v, %v", out, err)
	}
}

// TestSpareElsewhere checks that stored results also count when a rate is chosen.
func TestSpareElsewhere(t *testing.T) {
	s := tiny(t, rates)
	kept := results(t, s)
	for i, r := range kept {
		if r.Cell.Labels["seed"] == "0" {
			kept[i].State, kept[i].Summary = study.Done,
				map[string]float64{"val_loss": float64(len(r.Cell.Labels["rate"]))}
			if r.Cell.Labels["rate"] == "0.004" {
				kept[i].Summary["val_loss"] = 0
			}
		}
	}
	o := study.RunOptions{Command: []string{"sh", "-c", loses}, Stored: kept}
	out, err := run(t, s, o)
	if want := (study.Outcome{Cells: 2, Done: 2, Trained: 2}); err != nil || out != want {
		t.Fatalf("%+v, %v, want %+v", out, err, want)
	}
	if diff := cmp.Diff([]string{"CAGE · 1 · 0.004", "STE · 1 · 0.004"}, done(t, s)); diff != "" {
		t.Errorf("done (-want +got):\n%s", diff)
	}
}

// TestSpareWhereAllFail checks that the study ends if no choice can be made for waiting cells.
func TestSpareWhereAllFail(t *testing.T) {
	s := tiny(t, rates)
	out, err := run(t, s, study.RunOptions{Command: []string{"sh", "-c", "exit 3"}})
	if want := (study.Outcome{Cells: 8, Failed: 6, Missing: 2}); err != nil || out != want {
		t.Errorf("%+v, %v, want %+v", out, err, want)
	}
}

// TestSpareRetriesOnce checks that a cell that fails is not tried again when a table has chosen.
func TestSpareRetriesOnce(t *testing.T) {
	s := tiny(t, rates)
	fails := "grep -q '^rate = 0.004' \"$0\" && grep -q '^form = \"off\"' \"$0\" && exit 3\n" + loses
	o := study.RunOptions{Command: []string{"sh", "-c", fails}, Retry: true}
	out, err := run(t, s, o)
	if want := (study.Outcome{Cells: 8, Done: 6, Failed: 1, Missing: 1, Trained: 6}); err != nil ||
		out != want {
		t.Fatalf("%+v, %v, want %+v", out, err, want)
	}
	for _, r := range results(t, s) {
		if r.State == study.Failed && failure(t, r.Cell).Attempts != 1 {
			t.Errorf("%+v", failure(t, r.Cell))
		}
	}
}

// TestSpareWhereAnotherTableWants checks that a cell that one table does not need is trained if
// another table needs it.
func TestSpareWhereAnotherTableWants(t *testing.T) {
	const another = `
[[study.tables]]
rows = ["method"]
over = ["seed"]
where = {rate = ["0.004"]}
best = {axis = "rate", on = {seed = ["0"]}, spare = true}
`
	s := tiny(t, rates+another)
	list := results(t, s)
	for i, r := range list {
		if r.Cell.Labels["seed"] == "0" {
			list[i].State, list[i].Summary = study.Done,
				map[string]float64{"val_loss": float64(r.Cell.Labels["rate"][4])}
		}
	}
	spared, waiting := s.Prune(list)
	var got []string
	for _, c := range s.Cells {
		if spared[c.ID] {
			got = append(got, s.Label(c))
		}
	}
	if diff := cmp.Diff([]string{"STE · 1 · 0.002", "CAGE · 1 · 0.002"}, got); diff != "" {
		t.Errorf("spared (-want +got):\n%s", diff)
	}
	if slices.Contains(slices.Collect(maps.Values(waiting)), true) {
		t.Errorf("waiting: %v", waiting)
	}
}

func TestSpareNeedsReplicates(t *testing.T) {
	tiny(t, "")
	write(t, "tiny.toml", axes+strings.Replace(rates, `on = {seed = ["0"]}`, `on = "reported"`, 1))
	if _, err := study.Load("tiny.toml"); err == nil || !strings.Contains(err.Error(), "best.spare") {
		t.Errorf("the error is %v", err)
	}
}

// done returns the labels of the cells that are done.
func done(t *testing.T, s *study.Study) []string {
	t.Helper()
	var list []string
	for label, state := range states(t, s) {
		if state == study.Done {
			list = append(list, label)
		}
	}
	slices.Sort(list)
	return list
}
