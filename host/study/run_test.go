package study_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cage-qat/cage/host/study"
	"github.com/cage-qat/cage/host/train/build"
	"github.com/cage-qat/cage/host/train/config"
	"github.com/cage-qat/cage/host/train/console"
	"github.com/cage-qat/cage/host/train/metrics"
	"github.com/cage-qat/cage/host/train/plugin"
	"github.com/cage-qat/cage/host/train/rundir"
	"github.com/cage-qat/cage/internal/vfs"
)

// TestFailingCell checks that a training that fails is recorded with its error, affects no other
// cell, and is tried again only with Retry.
func TestFailingCell(t *testing.T) {
	path := command(t)
	s := tiny(t, `
[[study.cells]]
label = {method = "broken", seed = 0}
set = {quantizer.bitz = 3}
`)
	o := study.RunOptions{Command: []string{path, "train"}}
	out, err := run(t, s, o)
	if want := (study.Outcome{Cells: 5, Done: 4, Failed: 1, Trained: 4}); err != nil || out != want {
		t.Fatalf("%+v, %v, want %+v", out, err, want)
	}
	broken := results(t, s)[4]
	if broken.State != study.Failed ||
		!strings.Contains(broken.Err, "bitz: plugin quest has no such parameter; did you mean bits?") {
		t.Errorf("%s: %s", broken.State, broken.Err)
	}
	f := failure(t, broken.Cell)
	if f.Attempts != 1 || f.Exit != "exit status 1" || !strings.Contains(f.Log, "cage: ") ||
		f.File != "train.log" {
		t.Errorf("failure %+v", f)
	}
	for _, o.Retry = range []bool{false, true} {
		if out, err = run(t, s, o); err != nil || out.Trained != 0 || out.Failed != 1 {
			t.Errorf("%+v, %v", out, err)
		}
	}
	if f := failure(t, broken.Cell); f.Attempts != 2 {
		t.Errorf("%d attempts, want 2", f.Attempts)
	}
}

// TestEmptiedLog checks that the error of a cell is found in a log that is emptied meanwhile.
func TestEmptiedLog(t *testing.T) {
	s := tiny(t, "")
	const fails = `log="$(dirname "$0")/train.log"
[ -s "$log" ] && : > "$log" && echo "cage: no space" || echo "cage: the first and longer message"
exit 1`
	o := study.RunOptions{Command: []string{"sh", "-c", fails}}
	for _, o.Retry = range []bool{false, true} {
		if out, err := run(t, s, o); err != nil || out.Failed != 4 {
			t.Fatalf("%+v, %v", out, err)
		}
	}
	if f := failure(t, s.Cells[0]); f.Attempts != 2 || f.Error != "no space" {
		t.Errorf("failure %+v", f)
	}
}

// TestDamagedFiles checks that a damaged file affects only its cell, which a retry restores.
func TestDamagedFiles(t *testing.T) {
	path := command(t)
	s := tiny(t, "")
	o := study.RunOptions{Command: []string{path, "train"}}
	if out, err := run(t, s, o); err != nil || out.Done != 4 {
		t.Fatalf("%+v, %v", out, err)
	}
	before := results(t, s)
	write(t, filepath.Join(before[1].Cell.Dir, "summary.json"), "{\"val_loss\": 1")
	write(t, filepath.Join(before[2].Cell.Dir, "failed.json"), "not JSON")
	after := results(t, s)
	if r := after[1]; r.State != study.Failed || !strings.Contains(r.Err, "summary.json") ||
		r.Summary != nil {
		t.Errorf("a torn summary: %+v", r)
	}
	for _, i := range []int{0, 2, 3} {
		if after[i].State != study.Done {
			t.Errorf("cell %d is %s: %s", i, after[i].State, after[i].Err)
		}
	}
	o.Retry = true
	if out, err := run(t, s, o); err != nil || out.Trained != 1 || out.Done != 4 {
		t.Errorf("%+v, %v", out, err)
	}
	if got, want := timeless(results(t, s)[1].Summary), timeless(before[1].Summary); !cmp.Equal(got,
		want) {
		t.Errorf("after a retry: %s", cmp.Diff(want, got))
	}
}

// TestStuckCell checks that a retry repairs a cell that was stopped between writing run.toml and
// provenance.json. Older versions wrote run.toml first.
func TestStuckCell(t *testing.T) {
	path := command(t)
	s := tiny(t, "", "train.steps=2", "train.eval_every=0")
	only := map[string][]string{"seed": {"0"}, "method": {"CAGE"}}
	o := study.RunOptions{Command: []string{path, "train"}, Only: only}
	if out, err := run(t, s, o); err != nil || out.Done != 1 {
		t.Fatalf("%+v, %v", out, err)
	}
	done := slices.IndexFunc(results(t, s), func(r study.Result) bool { return r.State == study.Done })
	before := results(t, s)[done]
	dir := rundir.At(before.Cell.Dir)
	for _, path := range []vfs.Path{dir.Provenance(), dir.Metrics(), dir.Summary(),
		dir.Checkpoints()} {
		if err := os.RemoveAll(path.Name); err != nil {
			t.Fatal(err)
		}
	}
	write(t, filepath.Join(before.Cell.Dir, "failed.json"),
		`{"error": "no space left on device", "attempts": 1}`)
	if out, err := run(t, s, o); err != nil || out.Failed != 1 {
		t.Errorf("without a retry: %+v, %v", out, err)
	}
	o.Retry = true
	if out, err := run(t, s, o); err != nil || out.Done != 1 || out.Trained != 1 {
		t.Errorf("with a retry: %+v, %v: %s", out, err, results(t, s)[done].Err)
	}
	if diff := cmp.Diff(timeless(before.Summary), timeless(results(t, s)[done].Summary)); diff != "" {
		t.Errorf("after a retry:\n%s", diff)
	}
}

func failure(t *testing.T, c study.Cell) study.Failure {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(c.Dir, "failed.json"))
	if err != nil {
		t.Fatal(err)
	}
	var f study.Failure
	if err := json.Unmarshal(text, &f); err != nil {
		t.Fatal(err)
	}
	return f
}

// TestInterruptedAndLocked checks that an interrupted study leaves checkpoints, and that a study
// that is running cannot be run a second time.
func TestInterruptedAndLocked(t *testing.T) {
	path := command(t)
	s := tiny(t, "", "train.steps=100000", "train.checkpoint_every=0")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	o := study.RunOptions{Command: []string{path, "train"}}
	var second error
	var during map[string]study.State
	seen := 0
	o.Watch = func(p console.Progress) {
		if p.Running < 2 || ctx.Err() != nil {
			return
		}
		for _, c := range s.Cells[:2] {
			if _, begun, _ := metrics.Last(rundir.At(c.Dir).Metrics()); !begun {
				return
			}
		}
		seen++
		if p.Running != 2 || p.Total != 4 {
			t.Errorf("progress %+v", p)
		}
		during = states(t, s)
		_, second = study.Run(ctx, s, study.RunOptions{})
		cancel()
	}
	out, err := study.Run(ctx, s, o)
	if want := (study.Outcome{Cells: 4, Interrupted: 2, Missing: 2}); !errors.Is(err,
		study.ErrInterrupted) || out != want {
		t.Fatalf("%+v, %v, want %+v", out, err, want)
	}
	if !errors.Is(second, study.ErrLocked) || seen != 1 {
		t.Errorf("the second run: %v (seen %d)", second, seen)
	}
	want := map[string]study.State{"STE · 0": study.Running, "STE · 1": study.Running,
		"CAGE · 0": study.Missing, "CAGE · 1": study.Missing}
	if diff := cmp.Diff(want, during); diff != "" {
		t.Errorf("states while it ran (-want +got):\n%s", diff)
	}
	for label, state := range states(t, s) {
		if want[label] == study.Running && state != study.Interrupted {
			t.Errorf("%s is %s", label, state)
		}
	}
	for _, c := range s.Cells[:2] {
		if list, err := filepath.Glob(filepath.Join(rundir.At(c.Dir).Checkpoints().Name,
			"*")); err != nil || len(list) == 0 {
			t.Errorf("%s has no checkpoint: %v", c.ID, err)
		}
	}
}

// TestMissingData checks that missing files are reported before any cell is trained.
func TestMissingData(t *testing.T) {
	s := tiny(t, "", `data.train="none.tokens"`)
	survey := func(ctx context.Context, list []*config.Config) []config.Finding {
		return build.Survey(ctx, list, &plugin.Finder{}, plugin.Options{})
	}
	_, err := run(t, s, study.RunOptions{Command: []string{"false"}, Survey: survey})
	if err == nil || !strings.HasPrefix(err.Error(), "base.toml:") ||
		!strings.HasSuffix(err.Error(),
			`: data.train: open none.tokens: no such file or directory; make token files with `+"`cage data prepare`") {
		t.Errorf("%v", err)
	}
	if _, err := os.Stat(s.Cells[0].Dir); err == nil {
		t.Error("a cell has begun")
	}
}

// TestOtherCommands checks that a command that does not train gives a failed cell with its message.
func TestOtherCommands(t *testing.T) {
	s := tiny(t, "")
	for _, c := range []struct{ script, want string }{
		{"exit 0", "its process ended: exit status 0, without a result"},
		{"exit 3", "its process ended: exit status 3"},
		{"echo nothing; echo 'cage: first'; echo second; exit 1", "first\nsecond"},
		{"echo 'panic: boom'; echo 'goroutine 1'; exit 2",
			"its process ended: exit status 2: panic: boom"},
	} {
		_, err := run(t, s, study.RunOptions{Command: []string{"sh", "-c", c.script}, Retry: true,
			Only: map[string][]string{"seed": {"0"}}})
		if err != nil {
			t.Fatal(err)
		}
		if r := results(t, s)[0]; r.State != study.Failed || r.Err != c.want {
			t.Errorf("%s: %s: %q, want %q", c.script, r.State, r.Err, c.want)
		}
	}
	_, err := run(t, s, study.RunOptions{Command: []string{"there-is-no-such-command"}, Retry: true})
	if err != nil {
		t.Fatal(err)
	}
	if r := results(t, s)[0]; r.State != study.Failed ||
		!strings.Contains(r.Err, "there-is-no-such-command") {
		t.Errorf("%s: %s", r.State, r.Err)
	}
}

// TestCellsOnGPUs checks that as many cells run at once as there are GPUs, each on its own GPU.
func TestCellsOnGPUs(t *testing.T) {
	s := tiny(t, "", `device.kind="cuda"`)
	s.Parallel = 0
	t.Setenv("CUDA_VISIBLE_DEVICES", "6,3,0,4")
	// Each cell waits for the others, so that all run at once.
	script := `d="$(dirname "$0")"; echo "$CUDA_VISIBLE_DEVICES" > "$d/gpu"
while [ "$(cat "$d"/../*/gpu | wc -l)" -lt 4 ]; do sleep 0.01; done
echo '{"completed": true, "val_loss": 1}' > "$d/summary.json"`
	out, err := run(t, s, study.RunOptions{Command: []string{"sh", "-c", script}})
	if want := (study.Outcome{Cells: 4, Done: 4, Trained: 4}); err != nil || out != want {
		t.Fatalf("%+v, %v, want %+v", out, err, want)
	}
	files, err := filepath.Glob(filepath.Join(s.Out, "cells", "*", "gpu"))
	if err != nil {
		t.Fatal(err)
	}
	var seen []string
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		seen = append(seen, strings.TrimSpace(string(text)))
	}
	slices.Sort(seen)
	if fmt.Sprint(seen) != "[0 3 4 6]" {
		t.Errorf("the cells saw the GPUs %v", seen)
	}
}

// TestOnlyWhatIsMissing checks that only selected cells are trained, cells of equal configuration
// once, and finished cells not again.
func TestOnlyWhatIsMissing(t *testing.T) {
	path := command(t)
	s := tiny(t, `
[[study.cells]]
label = {method = "as STE"}
set = {method.form = "off"}
`)
	o := study.RunOptions{Command: []string{path, "train"},
		Only: map[string][]string{"seed": {"1"}, "method": {"STE", "as STE"}}}
	out, err := run(t, s, o)
	if want := (study.Outcome{Cells: 1, Done: 1, Trained: 1}); err != nil || out != want {
		t.Fatalf("%+v, %v, want %+v", out, err, want)
	}
	want := map[string]study.State{
		"STE · 0": study.Missing, "STE · 1": study.Done, "CAGE · 0": study.Missing,
		"CAGE · 1":   study.Missing,
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
	if again, err := os.Stat(rundir.At(s.Cells[1].Dir).Summary().Name); err != nil || !again.ModTime().
		Equal(first.ModTime()) {
		t.Errorf("a finished cell was trained again: %v", err)
	}
	copied, err := os.ReadFile("studies/tiny/study.toml")
	if original, _ := os.ReadFile("tiny.toml"); err != nil || string(copied) != string(original) {
		t.Errorf("the copy of the study file: %v", err)
	}
	// If the study file changes, cells that it no longer has are ignored, and the others are found.
	write(t, "tiny.toml", strings.Replace(axes, "[0, 1]", "[1, 2]", 1))
	want = map[string]study.State{"STE · 1": study.Done, "STE · 2": study.Missing,
		"CAGE · 1": study.Done, "CAGE · 2": study.Missing}
	if diff := cmp.Diff(want, states(t, load(t, "tiny.toml"))); diff != "" {
		t.Errorf("states of another study (-want +got):\n%s", diff)
	}
}

// TestStopMinutes checks that a training is told how long it may take to stop, as the study file
// sets it, and is killed after that time.
func TestStopMinutes(t *testing.T) {
	t.Chdir(t.TempDir())
	write(t, "slow.toml", strings.Replace(fmt.Sprintf(twoCells, "out"), "parallel = 1",
		"parallel = 1\nstop_minutes = 0.005", 1))
	s := load(t, "slow.toml")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		awaitFile(t, filepath.Join(s.Cells[0].Dir, "arguments"), "--lifeline=300ms")
		cancel()
	}()
	script := `echo "$*" > "$(dirname "$1")/arguments"; exec sleep 100`
	began := time.Now()
	out, err := study.Run(ctx, s, study.RunOptions{Command: []string{"sh", "-c", script, "sh"}})
	if took := time.Since(began); !errors.Is(err, study.ErrInterrupted) || out.Interrupted != 1 ||
		took > 30*time.Second {
		t.Errorf("%+v, %v after %v", out, err, took)
	}
}

// TestPercent checks that a percent sign may follow the number of a format.
func TestPercent(t *testing.T) {
	for format, ok := range map[string]bool{"%.1f %%": true, "%.1f %": false, "%.1f %.1f": false} {
		text := fmt.Sprintf(twoCells, "x") + "[[study.tables]]\nover = [\"seed\"]\nformat = \"" + format +
			"\"\n"
		if _, err := study.Parse("a.toml", []byte(text)); (err == nil) != ok {
			t.Errorf("%q: %v", format, err)
		}
	}
}
