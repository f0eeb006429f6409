//go:build linux

package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cage-qat/cage/internal/atomicfile"
	"github.com/cage-qat/cage/internal/vfs"
	"github.com/cage-qat/cage/tools/syscallfault"
)

// cageEnv is the environment variable that makes this test binary act as the killed command.
const cageEnv = "CAMPAIGN_TEST_CAGE"

func TestMain(m *testing.M) {
	syscallfault.Launch()
	if os.Getenv(cageEnv) != "" {
		if err := cages[os.Args[1]](); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// cages are commands that write a file, carefully or not.
var cages = map[string]func() error{
	"careful": func() error {
		left, err := atomicfile.Abandoned(vfs.At("."),
			func(name string) bool { return name == "summary.json" })
		for _, path := range left {
			err = errors.Join(err, path.Remove())
		}
		return errors.Join(err, save())
	},
	"untidy": save,
	"in place": func() error {
		return os.WriteFile("summary.json", []byte(content), 0o600)
	},
	"once only": func() error {
		if err := os.Mkdir("made", 0o700); err != nil {
			return err
		}
		return os.WriteFile("made/log", nil, 0o600)
	},
	"goes on wrongly": func() error {
		f, err := os.OpenFile("records.jsonl", os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
		if err != nil {
			return err
		}
		for step := range 2 {
			if _, err := fmt.Fprintf(f, "{\"step\":%d}\n", step); err != nil {
				return err
			}
		}
		return f.Close()
	},
	"orphan": func() error {
		child := exec.Command("/bin/sleep", "3600")
		if err := child.Start(); err != nil {
			return err
		}
		if err := os.WriteFile("log", nil, 0o600); err != nil {
			return err
		}
		err := child.Process.Kill()
		_ = child.Wait() // returns an error, because it was killed
		return err
	},
}

const content = `{"step": 8, "seconds": 1}`

func save() error { return atomicfile.WriteBytes(vfs.At("summary.json"), []byte(content)) }

// against runs a whole campaign against one of the commands in cages.
func against(t *testing.T, which string, o options) ([]Record, string, error) {
	t.Helper()
	if err := syscallfault.Supported(t.Context()); err != nil {
		t.Skip(err)
	}
	t.Setenv(cageEnv, "1")
	out := &bytes.Buffer{}
	o.Cage, o.Seed, o.Parallel, o.Out = os.Args[0], 1, 2, out
	if o.Dir == "" {
		o.Dir = t.TempDir()
	}
	s := Scenario{Name: which, Files: map[string]string{"input": ""}, Run: []string{which},
		Again: []string{which}}
	records, err := experiments(t.Context(), o, []Scenario{s})
	return records, out.String(), err
}

func TestNothingIsLost(t *testing.T) {
	records, out, err := against(t, "careful", options{Rounds: 4})
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	const calls = 5 // create, write, fsync, rename, fsync of the directory
	if len(records) != 4*calls {
		t.Errorf("%d experiments, want %d", len(records), 4*calls)
	}
	var all, alone, torn, twice int
	for _, r := range records {
		if len(r.Kills) == 0 {
			t.Errorf("%s: no kill", r.Key)
		}
		if len(r.Kills) > 1 {
			twice++
		}
		for _, k := range r.Kills {
			if k.All {
				all++
			} else {
				alone++
			}
			if k.Torn {
				torn++
			}
		}
	}
	if all == 0 || alone == 0 || torn == 0 || twice == 0 {
		t.Errorf("%d kills of all processes, %d of the caller, %d in the middle of a write, %d "+
			"experiments with two", all, alone, torn, twice)
	}
}

// TestCarelessnessIsFound checks that careless commands are found, and that evidence is kept.
func TestCarelessnessIsFound(t *testing.T) {
	for _, test := range []struct{ which, want string }{
		{"untidy", "is left over"},
		{"in place", "summary.json is incomplete after the kill"},
		{"once only", "exit status 1"},
		{"goes on wrongly", "records.jsonl differs from that of an undisturbed run"},
	} {
		t.Run(test.which, func(t *testing.T) {
			dir := t.TempDir()
			records, out, err := against(t, test.which, options{Rounds: 2, Dir: dir})
			if err == nil || !strings.Contains(out, test.want) {
				t.Fatalf("error %v, output without %q:\n%s", err, test.want, out)
			}
			i := slices.IndexFunc(records, func(r Record) bool { return len(r.Failures) > 0 })
			if again := fmt.Sprintf("-seed 1 -only %s\n", records[i].Key); !strings.Contains(out, again) {
				t.Errorf("output without %q:\n%s", again, out)
			}
			kept, err := filepath.Glob(
				filepath.Join(dir, "*", "failures", strings.ReplaceAll(records[i].Key.String(), ":", "-"),
					"killed", "input"))
			if err != nil || len(kept) != 1 {
				t.Errorf("what the kill left is kept at %v, %v", kept, err)
			}
		})
	}
}

func TestOrphansAreFound(t *testing.T) {
	before := orphanGrace
	orphanGrace = 200 * time.Millisecond
	t.Cleanup(func() { orphanGrace = before })
	_, out, err := against(t, "orphan", options{Rounds: 3})
	if err == nil || !strings.Contains(out, "outlived cage orphan") {
		t.Errorf("error %v, output:\n%s", err, out)
	}
}

// TestGoesOn checks that a stopped campaign can be continued, and one experiment repeated.
func TestGoesOn(t *testing.T) {
	o := options{Rounds: 2, Dir: t.TempDir()}
	whole, out, err := against(t, "careful", o)
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	paths, err := filepath.Glob(filepath.Join(o.Dir, "*", "results.jsonl"))
	if err != nil || len(paths) != 1 {
		t.Fatal(paths, err)
	}
	text, err := os.ReadFile(paths[0])
	if err != nil {
		t.Fatal(err)
	}
	lines := bytes.SplitAfter(text, []byte("\n"))
	half := append(bytes.Join(lines[:4], nil), lines[4][:10]...) // stopped in the middle of a line
	if err := os.WriteFile(paths[0], half, 0o600); err != nil {
		t.Fatal(err)
	}
	again, out, err := against(t, "careful", o)
	if err != nil || !strings.Contains(out, "6 experiments to do, 4 done before") {
		t.Errorf("error %v, output:\n%s", err, out)
	}
	keys := func(list []Record) (names []string) {
		for _, r := range list {
			names = append(names, r.Key.String())
		}
		return slices.Sorted(slices.Values(names))
	}
	if a, b := keys(whole), keys(again); !slices.Equal(a, b) {
		t.Errorf("experiments %v, then %v", a, b)
	}
	o.Only = "careful:1:3"
	repeated, out, err := against(t, "careful", o)
	if err != nil || !strings.Contains(out, "1 experiments to do") {
		t.Errorf("error %v, output:\n%s", err, out)
	}
	if a, b := keys(whole), keys(repeated); !slices.Equal(a, b) {
		t.Errorf("experiments %v, with one repeated %v", a, b)
	}
}

// TestFailuresStay checks that a campaign that is continued after a failure fails again, even if
// nothing is left to do.
func TestFailuresStay(t *testing.T) {
	o := options{Rounds: 1, Dir: t.TempDir()}
	_, out, first := against(t, "in place", o)
	_, again, second := against(t, "in place", o)
	if first == nil || second == nil || first.Error() != second.Error() ||
		!strings.Contains(again, " 0 experiments to do") {
		t.Errorf("errors %v, then %v; output:\n%s\n%s", first, second, out, again)
	}
}

// TestTimeLimit checks that preparations do not count in the time limit: an experiment is done.
func TestTimeLimit(t *testing.T) {
	records, out, err := against(t, "careful", options{Rounds: 8, For: time.Nanosecond})
	if err != nil || len(records) != 1 {
		t.Errorf("%d experiments, want 1; error %v, output:\n%s", len(records), err, out)
	}
}

func TestSummarize(t *testing.T) {
	out := &bytes.Buffer{}
	summarize(out, []Record{
		{Key: Key{"a", 0, 1}, Kills: []Killed{{Call: "write", All: true, Torn: true}, {Call: "fsync"}}},
		{Key: Key{"b", 0, 1}, Failures: []string{"lost"}},
	})
	want := "2 experiments with 2 kills, 1 of the caller alone, 1 in the middle of a write: 1 failed\n"
	if out.String() != want {
		t.Errorf("%q, want %q", out, want)
	}
}
