package study_test

import (
	"context"
	"os"
	"strings"
	"testing"

	"github.com/cage-qat/cage/host/study"
	"github.com/cage-qat/cage/host/train/config"
)

// choosing is a study whose table chooses a rate by seed 9, of a model and of its rounded copy.
const choosing = smallBase + `
parallel = 1
[[study.axes]]
name = "method"
values = [{label = "full"}, {label = "RTN",
  set = {quantizer = {plugin = "quest", bits = 4}}, quantize = "rtn"}]
[[study.axes]]
name = "rate"
key = "schedule.rate"
values = [1e-3, 2e-3]
[[study.axes]]
name = "seed"
key = "seed"
values = [9, 0]
[[study.tables]]
rows = ["method"]
over = ["seed"]
best = {axis = "rate", on = {seed = ["9"]}, spare = true}
`

// staleWith returns a survey by which runs are stale whose summary has the given text.
func staleWith(text string) study.Survey {
	return func(_ context.Context, list []*config.Config) []config.Finding {
		found := make([]config.Finding, len(list))
		for i, c := range list {
			summary, err := os.ReadFile(c.Train.Out + "/summary.json")
			if err == nil && strings.Contains(string(summary), text) {
				found[i].Stale = "a plugin has changed"
			}
		}
		return found
	}
}

// TestKeptSources checks that a source of spared cells, which is kept, is not trained again: the
// model is best at another rate than its rounded copy.
func TestKeptSources(t *testing.T) {
	s := quantizes(t, choosing)
	kept := results(t, s)
	for i, r := range kept {
		l := r.Cell.Labels
		good := l["rate"] == map[string]string{"full": "1e-3", "RTN": "2e-3"}[l["method"]]
		if l["seed"] == "9" || good || l["method"] == "full" {
			v := 2.0
			if good {
				v = 1
			}
			kept[i].State, kept[i].Summary = study.Done, map[string]float64{"val_loss": v}
		}
	}
	o := standIns()
	o.Stored = kept
	p, err := s.Plan(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range p.Run {
		t.Errorf("%s would be trained, although it is kept", s.Label(c))
	}
}

// TestNeededElsewhere checks that a table spares no cell that another table chooses by or reports.
func TestNeededElsewhere(t *testing.T) {
	more := func(add string) *study.Study {
		return quantizes(t, strings.Replace(choosing, "values = [9, 0]", "values = [9, 8, 0]", 1)+add)
	}
	val := func(s *study.Study) []study.Result {
		list := results(t, s)
		for i, r := range list {
			if r.Cell.Labels["seed"] == "9" {
				v := 2.0
				if r.Cell.Labels["rate"] == "1e-3" {
					v = 1
				}
				list[i].State, list[i].Summary = study.Done, map[string]float64{"val_loss": v}
			}
		}
		return list
	}
	s := more(`
[[study.tables]]
rows = ["method"]
over = ["seed"]
best = {axis = "rate", on = {seed = ["9", "8"]}, spare = true}
`)
	un, wait := s.Prune(val(s))
	for _, c := range s.Cells {
		if c.Labels["seed"] == "8" && (un[c.ID] || wait[c.ID]) {
			t.Errorf("%s chooses in table 2, but is unneeded %v, waiting %v", s.Label(c), un[c.ID],
				wait[c.ID])
		}
	}
	s = more(`
[[study.tables]]
rows = ["method"]
columns = ["rate"]
over = ["seed"]
`)
	un, _ = s.Prune(val(s))
	for _, c := range s.Cells {
		if un[c.ID] {
			t.Errorf("%s is in a plain table, but unneeded", s.Label(c))
		}
	}
}

// TestRetryShared checks that cells which wait for a source that is retried are retried, too.
func TestRetryShared(t *testing.T) {
	s := quantizes(t, strings.Replace(quantizing, "parallel = 1", "parallel = 3", 1))
	o := standIns()
	o.Command = []string{"sh", "-c", "exit 3"}
	if _, err := run(t, s, o); err != nil {
		t.Fatal(err)
	}
	o = standIns()
	o.Command[2] = "sleep 1; " + o.Command[2]
	o.Share, o.Retry = true, true
	out, err := run(t, s, o)
	if err != nil || out.Failed > 0 {
		t.Errorf("%d cells were not retried: %v", out.Failed, err)
	}
}

// TestDivergedSource checks that a source that diverged and is stale, and the cells made from it,
// which have no directory yet, are made in one run.
func TestDivergedSource(t *testing.T) {
	s := quantizes(t, strings.Replace(quantizing, `{label = "full"}`,
		`{label = "full"}, {label = "QAT", init = {method = "full"}, set = {seed = 1}}`, 1))
	o := standIns()
	o.Command[2] = strings.Replace(o.Command[2], `"val_loss": 2`, `"val_loss": "NaN"`, 1)
	o.Only = map[string][]string{"method": {"full"}}
	if out, err := run(t, s, o); err != nil {
		t.Fatal(out, err)
	}
	o = standIns()
	o.Survey = staleWith("NaN")
	out, err := run(t, s, o)
	if err != nil || out.Failed > 0 {
		t.Errorf("%+v, %v", out, err)
	}
}

// TestStaleChoice checks that cells which are not selected do not choose if they are stale.
func TestStaleChoice(t *testing.T) {
	s := quantizes(t, choosing)
	for _, c := range s.Cells {
		if c.Labels["seed"] == "9" && c.Labels["method"] == "full" {
			trained(t, c.Dir)
		}
	}
	o := standIns()
	o.Only = map[string][]string{"seed": {"0"}, "method": {"full"}}
	o.Survey = staleWith("")
	p, err := s.Plan(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range p.Run {
		t.Errorf("%s is trained by the choice of stale cells", s.Label(c))
	}
}

// TestAllDiverged checks that nothing waits for a choice if all that could choose has diverged.
func TestAllDiverged(t *testing.T) {
	s := quantizes(t, choosing)
	list := results(t, s)
	for i, r := range list {
		if r.Cell.Labels["seed"] == "9" {
			list[i].State, list[i].Diverged = study.Failed, true
		}
	}
	_, wait := s.Prune(list)
	for _, c := range s.Cells {
		if wait[c.ID] {
			t.Errorf("%s waits forever", s.Label(c))
		}
	}
}

// TestUndecided checks that a cell which a table has not chosen is decided although another entry
// is still open.
func TestUndecided(t *testing.T) {
	s := quantizes(t, choosing)
	list := results(t, s)
	for i, r := range list {
		if l := r.Cell.Labels; l["seed"] == "9" && l["method"] == "RTN" {
			v := map[string]float64{"1e-3": 1, "2e-3": 2}[l["rate"]]
			list[i].State, list[i].Summary = study.Done, map[string]float64{"val_loss": v}
		}
	}
	undecided := s.Undecided(list)
	for _, c := range s.Cells {
		if c.Labels["seed"] == "0" && c.Labels["rate"] == "2e-3" &&
			undecided[c.ID] != (c.Labels["method"] == "full") {
			t.Errorf("%s: undecided is %v", s.Label(c), undecided[c.ID])
		}
	}
}
