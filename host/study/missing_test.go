package study_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cage-qat/cage/host/study"
	"github.com/cage-qat/cage/host/train/rundir"
)

// Only the cells that were asked for are trained, cells of equal configuration once, and
// none that is done again.
func TestOnlyWhatIsMissing(t *testing.T) {
	path := command(t)
	s := tiny(t, `
[[study.cells]]
label = {method = "as STE"}
set = {method.form = "off"}
`)
	o := study.RunOptions{Command: []string{path, "train"}, Only: map[string][]string{"seed": {"1"}, "method": {"STE", "as STE"}}}
	out, err := run(t, s, o)
	if want := (study.Outcome{Cells: 1, Done: 1, Trained: 1}); err != nil || out != want {
		t.Fatalf("%+v, %v, want %+v", out, err, want)
	}
	want := map[string]study.State{
		"STE · 0": study.Missing, "STE · 1": study.Done, "CAGE · 0": study.Missing, "CAGE · 1": study.Missing,
		"as STE · 0": study.Missing, "as STE · 1": study.Done,
	}
	if diff := cmp.Diff(want, states(t, s)); diff != "" {
		t.Errorf("states (-want +got):\n%s", diff)
	}
	first, err := os.Stat(rundir.At(s.Cells[1].Dir).Summary().Name)
	if err != nil {
		t.Fatal(err)
	}
	o.Only = nil
	out, err = run(t, s, o)
	if want := (study.Outcome{Cells: 4, Done: 4, Trained: 3}); err != nil || out != want {
		t.Fatalf("%+v, %v, want %+v", out, err, want)
	}
	if again, err := os.Stat(rundir.At(s.Cells[1].Dir).Summary().Name); err != nil || !again.ModTime().Equal(first.ModTime()) {
		t.Errorf("a finished cell was trained again: %v", err)
	}
	copied, err := os.ReadFile("studies/tiny/study.toml")
	if original, _ := os.ReadFile("tiny.toml"); err != nil || string(copied) != string(original) {
		t.Errorf("the copy of the study file: %v", err)
	}
	// A file that names other cells ignores these; one that names them again finds them.
	write(t, "tiny.toml", strings.Replace(axes, "[0, 1]", "[1, 2]", 1))
	want = map[string]study.State{"STE · 1": study.Done, "STE · 2": study.Missing, "CAGE · 1": study.Done, "CAGE · 2": study.Missing}
	if diff := cmp.Diff(want, states(t, load(t))); diff != "" {
		t.Errorf("states of another study (-want +got):\n%s", diff)
	}
}

// TestPercent: a percent sign may stand behind a number.
func TestPercent(t *testing.T) {
	for format, ok := range map[string]bool{"%.1f %%": true, "%.1f %": false, "%.1f %.1f": false} {
		text := fmt.Sprintf(twoCells, "x") + "[[study.tables]]\nover = [\"seed\"]\nformat = \"" + format + "\"\n"
		if _, err := study.Parse("a.toml", []byte(text)); (err == nil) != ok {
			t.Errorf("%q: %v", format, err)
		}
	}
}
