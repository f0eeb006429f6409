package rundir

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cage-qat/cage/host/train/metrics"
)

func TestList(t *testing.T) {
	some(t)
	var lister Lister
	for _, how := range []string{"at first", "again"} {
		l, err := lister.List(t.Context(), "runs", "./runs/a", "runs/deep")
		if err != nil {
			t.Fatal(err)
		}
		if got, want := dirs(l), "a b broken d c e"; got != want {
			t.Fatalf("%s: %s, want %s", how, got, want)
		}
		for i, want := range []State{Done, Done, Unreadable, Interrupted, Done, Done} {
			if l[i].State != want {
				t.Errorf("%s: %s is %s, want %s", how, l[i].Dir, l[i].State, want)
			}
		}
		if !strings.HasPrefix(l[2].Err,
			filepath.Join("runs", "broken", "run.toml")+":1: not valid TOML") {
			t.Errorf("%s: %s", how, l[2].Err)
		}
		for name, want := range map[string]string{
			"run": filepath.Join("runs", "d"), "state": "interrupted", "steps": "7", "train_loss": "4.5",
			"quantizer.weights.bits": "4", "quantizer.bits": "4", "model.kind": "llama",
			"schedule.rate": "0.003",
		} {
			if got, ok := l[3].Lookup(name); !ok || got != want {
				t.Errorf("%s: %s of d is %q, %v, want %q", how, name, got, ok, want)
			}
		}
		if got, ok := l[3].Lookup("quantizer.plugin"); ok {
			t.Errorf("%s: quantizer.plugin of d is %q, but its activations have another", how, got)
		}
		for _, name := range []string{"quantizer.bits", "quantizer.nothing", "val_los", ""} {
			if got, ok := l[5].Lookup(name); ok {
				t.Errorf("%s: %q of e is %q, want nothing", how, name, got)
			}
		}
		if x, ok := l[5].Result("val_loss"); !ok || !math.IsNaN(x) {
			t.Errorf("%s: the loss of e is %v", how, x)
		}
	}
	if _, err := new(Lister).List(t.Context(), "runs", "runz"); err == nil ||
		err.Error() != "there is no directory runz" {
		t.Errorf("%v", err)
	}
	if _, err := new(Lister).List(t.Context(), "runs/nothing/notes.txt"); err == nil {
		t.Error("a file is taken for a directory of runs")
	}
}

// TestListerFollowsTheRuns checks that changed runs are read again and removed runs disappear.
func TestListerFollowsTheRuns(t *testing.T) {
	some(t)
	var lister Lister
	list := func() []*Run {
		t.Helper()
		l, err := lister.List(t.Context(), "runs")
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	list()
	fake(t, "runs/d", 1, 0)
	fake(t, "runs/f", 9, 3)
	if err := os.RemoveAll("runs/b"); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename("runs/e", "runs/g"); err != nil {
		t.Fatal(err)
	}
	l := list()
	if got, want := dirs(l), "a broken d c f g"; got != want {
		t.Fatalf("%s, want %s", got, want)
	}
	if x, _ := l[2].Result("val_loss"); l[2].State != Done || x != 1 {
		t.Errorf("d is %s with %v", l[2].State, x)
	}
	write(t, At("runs/f").Metrics().Name, "{\"step\":4,\"loss\":8}\n")
	later := time.Now().Add(time.Hour)
	if err := os.Chtimes("runs/f/metrics.jsonl", later, later); err != nil {
		t.Fatal(err)
	}
	if steps, _ := list()[4].Result("steps"); steps != 4 {
		t.Errorf("f has %v steps, want those of its new record", steps)
	}
}

func content(t testing.TB, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestKnown(t *testing.T) {
	some(t)
	l := list(t, "runs")
	for name, want := range map[string]string{
		"val_loss": "", "state": "", "quantizer.bits": "", "val_ppl": "", // d can still get it
		"val_los":        `no run has "val_los"; did you mean val_loss?`,
		"method.lamda":   `no run has "method.lamda"; did you mean method.lambda?`,
		"something.else": `no run has "something.else"`,
	} {
		got := ""
		if err := CheckName(l, name); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}

// TestKnownWhenAllAreDone checks that a result that no run has is only known if a run is not done.
func TestKnownWhenAllAreDone(t *testing.T) {
	t.Chdir(t.TempDir())
	fake(t, "runs/a", 3, 0)
	if err := CheckName(list(t, "runs"), "val_ppl"); err == nil {
		t.Error("val_ppl is known")
	}
	fake(t, "runs/b", 3, 7)
	if err := CheckName(list(t, "runs"), "val_ppl"); err != nil {
		t.Errorf("with a run under way: %v", err)
	}
}

func TestOpen(t *testing.T) {
	some(t)
	r, err := Open("runs/a/")
	if err != nil || r.Dir != filepath.Join("runs", "a") || r.State != Done || len(r.Config()) < 40 ||
		len(r.Results()) < 5 {
		t.Errorf("%+v, %v", r, err)
	}
	for dir, want := range map[string]string{
		"runs/z":       "there is no run directory runs/z",
		"runs/nothing": "runs/nothing is not a run directory: it has no run.toml",
	} {
		if _, err := Open(dir); err == nil || err.Error() != want {
			t.Errorf("%s: %v", dir, err)
		}
	}
}

// TestWhyARunIsNotDone checks the states of runs that are not done: running, interrupted, diverged
// or failed. A lister notices that a run has started again.
func TestWhyARunIsNotDone(t *testing.T) {
	t.Chdir(t.TempDir())
	for name, s := range map[string]metrics.Summary{
		"diverged": {Stopped: metrics.Diverged, Error: "loss NaN"},
		"failed":   {Stopped: metrics.Failed, Error: "disk full"},
		"stopped":  {Stopped: metrics.Interrupted},
	} {
		fake(t, "runs/"+name, 4, 7)
		summarize(t, "runs/"+name, s)
	}
	fake(t, "runs/killed", 4, 7)
	var lister Lister
	check := func(when string, want ...string) {
		t.Helper()
		l, err := lister.List(t.Context(), "runs")
		if err != nil {
			t.Fatal(err)
		}
		for i, r := range l {
			if got := fmt.Sprintf("%s %s", r.State, r.Err); got != want[i] {
				t.Errorf("%s: %s is %q, want %q", when, r.Dir, got, want[i])
			}
			if one, err := Open(r.Dir); err != nil || one.State != r.State {
				t.Errorf("%s: alone, %s is %s, %v", when, r.Dir, one.State, err)
			}
		}
	}
	check("at rest", "diverged loss NaN", "failed disk full", "interrupted ", "interrupted ")
	lock, err := At("runs/diverged").Lock().Lock()
	if err != nil {
		t.Fatal(err)
	}
	check("under way", "running ", "failed disk full", "interrupted ", "interrupted ")
	if err := lock.Unlock(); err != nil {
		t.Fatal(err)
	}
	check("at rest again", "diverged loss NaN", "failed disk full", "interrupted ", "interrupted ")
}

// TestWithoutRecords checks that an interrupted run without records has the number of steps of its
// summary.
func TestWithoutRecords(t *testing.T) {
	t.Chdir(t.TempDir())
	fake(t, "runs/a", 3, 0)
	for name, records := range map[string]string{"empty": "", "torn": `{"step":1`, "none": ""} {
		fake(t, "runs/"+name, 4, 7)
		summarize(t, "runs/"+name, metrics.Summary{Stopped: metrics.Interrupted, Steps: 20})
		write(t, At("runs/"+name).Metrics().Name, records)
	}
	if err := At("runs/none").Metrics().Remove(); err != nil {
		t.Fatal(err)
	}
	for _, r := range list(t, "runs")[1:] {
		if steps, _ := r.Result("steps"); r.State != Interrupted || steps != 20 {
			t.Errorf("%s: %s after %v steps, %s", r.Dir, r.State, steps, r.Err)
		}
	}
}

// TestNumbersOfRunsThatAreNotDone checks that a run has the numbers of its summary, newest record
// and newest evaluation, and that the newest value of each counts.
func TestNumbersOfRunsThatAreNotDone(t *testing.T) {
	t.Chdir(t.TempDir())
	const records = `{"step":5,"loss":4,"tokens":50,"seconds":1,"val_loss":3.5,"val_ppl":33}
{"step":6,"loss":3,"tokens":60,"seconds":1.5,"error_rel":0.25,"weights":{"w":{"error_rel":9}}}
{"step":7,"loss":2,"tokens":70,"seconds":2,"tokens_per_second":5,"skipped":1}
`
	for _, name := range []string{"after", "before", "killed"} {
		fake(t, "runs/"+name, 0, 7)
		write(t, At("runs/"+name).Metrics().Name, records)
	}
	summarize(t, "runs/after", metrics.Summary{Stopped: metrics.Interrupted, Steps: 8, Tokens: 80,
		TrainLoss: metrics.Some(1.5), ErrorRel: metrics.Some(0.125)})
	summarize(t, "runs/before", metrics.Summary{Stopped: metrics.Failed, Steps: 3, Tokens: 30,
		TrainLoss: metrics.Some(5), ErrorRel: metrics.Some(0.5)})
	for dir, want := range map[string]map[string]string{
		"after": {"steps": "8", "tokens": "80", "train_loss": "1.5", "error_rel": "0.125",
			"val_loss": "3.5", "val_ppl": "33"},
		"before": {"steps": "7", "tokens": "70", "train_loss": "2", "error_rel": "0.5", "val_loss": "3.5",
			"skipped": "1"},
		"killed": {"steps": "7", "tokens": "70", "train_loss": "2", "error_rel": "", "val_loss": "3.5",
			"seconds": "2", "tokens_per_second": ""},
	} {
		r, err := Open("runs/" + dir)
		if err != nil {
			t.Fatal(err)
		}
		for name, want := range want {
			if got, _ := r.Lookup(name); got != want {
				t.Errorf("%s: %s is %q, want %q", dir, name, got, want)
			}
		}
	}
	if found := Filter(list(t, "runs"), []Condition{{"tokens", ">", "0"}}); len(found) != 3 {
		t.Errorf("%d runs have tokens", len(found))
	}
}

// TestReadableAgain checks that an unreadable run is read again even if size and time of its files
// have not changed.
func TestReadableAgain(t *testing.T) {
	t.Chdir(t.TempDir())
	at := time.Now().Add(-time.Hour)
	var lister Lister
	for i, c := range []struct {
		text  string
		state State
	}{{"seed = \n\n", Unreadable}, {"seed = 7\n", Interrupted}} {
		write(t, "runs/a/run.toml", c.text)
		if err := os.Chtimes("runs/a/run.toml", at, at); err != nil {
			t.Fatal(err)
		}
		if l, err := lister.List(t.Context(), "runs"); err != nil || len(l) != 1 ||
			l[0].State != c.state {
			t.Errorf("time %d: %+v, %v", i, l, err)
		}
	}
}
