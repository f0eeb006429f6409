package study_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cage-qat/cage/host/study"
	"github.com/cage-qat/cage/host/train/checkpoint"
	"github.com/cage-qat/cage/host/train/config"
	"github.com/cage-qat/cage/host/train/rundir"
	"github.com/cage-qat/cage/internal/testing/testlevel"
	"github.com/cage-qat/cage/internal/vfs"
)

// smallBase is the beginning of a study of a small language model, whose other keys follow.
const smallBase = `
[base]
model = {layers = 1, width = 32, heads = 2, context = 16}
data = {train = "t.tokens", validation = "v.tokens"}
train = {steps = 1, batch = 2}
schedule = {rate = 3e-3}
optimizer = {plugin = "adamw"}
[study]
name = "q"
`

const quantizing = smallBase + `
parallel = 1
[[study.axes]]
name = "method"
values = [{label = "full"}, {label = "RTN", set = {quantizer = {plugin = "quest", bits = 4}}, quantize = "rtn"}, {label = "GPTQ", set = {quantizer = {plugin = "quest", bits = 4}}, quantize = {method = "gptq", windows = 8}}]
`

// Shell commands that replace cage: trainTool trains, and quantizeTool quantizes and evaluates.
const (
	trainTool    = `dir=$(dirname "$1"); cp "$1" "$dir/run.toml"; echo '{"completed": true, "steps": 1, "val_loss": 2}' > "$dir/summary.json"`
	quantizeTool = `case "$1" in quantize) cat "$2/summary.json" >> sources; while [ $# -gt 0 ]; do if [ "$1" = --out ]; then out=$2; fi; shift; done; mkdir -p "$out"; echo '{"completed": true}' > "$out/summary.json";;
eval) echo '{"val_loss": 2.5, "loss": 2.5}';; esac; exit 0`
)

// standIns returns options with the commands that replace cage.
func standIns() study.RunOptions {
	return study.RunOptions{Command: []string{"sh", "-c", trainTool, "sh"},
		Tool: []string{"sh", "-c", quantizeTool, "sh"}}
}

// quantizes writes a study to a new directory, and changes to it.
func quantizes(t *testing.T, text string) *study.Study {
	t.Helper()
	t.Chdir(t.TempDir())
	write(t, "t.tokens", "")
	write(t, "v.tokens", "")
	write(t, "q.toml", text)
	return load(t, "q.toml")
}

// trained writes the files that a training leaves in the directory of a cell.
func trained(t *testing.T, dir string) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "cell.toml"), config.Heading)
	write(t, filepath.Join(dir, "summary.json"), `{"completed": true, "val_loss": 1}`)
}

// TestDamagedQuantized checks that a damaged summary of a quantized model affects only its cell,
// and that a retry repairs it.
func TestDamagedQuantized(t *testing.T) {
	s := quantizes(t, quantizing)
	if out, err := run(t, s, standIns()); err != nil || out.Failed > 0 {
		t.Fatalf("%+v, %v", out, err)
	}
	damaged, other := s.Cells[1], s.Cells[2]
	write(t, filepath.Join(damaged.Run, "summary.json"), `{"completed":`)
	if err := os.RemoveAll(other.Dir); err != nil {
		t.Fatal(err)
	}
	o := standIns()
	o.Retry = true
	if _, err := run(t, s, o); err != nil {
		t.Fatal(err)
	}
	for _, r := range results(t, s) {
		if r.State != study.Done {
			t.Errorf("%s is %s: %s", r.Cell.ID, r.State, r.Err)
		}
	}
}

// TestStoppedAlone checks that if a single cell is stopped, this cell and those made from it are
// interrupted. The other cells continue, and the next run completes the study.
func TestStoppedAlone(t *testing.T) {
	s := quantizes(t, quantizing+"[[study.axes]]\nname = \"seed\"\nkey = \"seed\"\nvalues = [0, 1]\n")
	stopping := standIns()
	stopping.Command = []string{"sh", "-c",
		`case "$1" in *full-0*) echo "cage: training was interrupted"; exit 130;; esac; ` + trainTool,
		"sh"}
	out, err := run(t, s, stopping)
	if !errors.Is(err, study.ErrInterrupted) || out.Interrupted != 3 || out.Failed != 0 ||
		out.Done != 3 {
		t.Errorf("%+v, %v", out, err)
	}
	for _, r := range results(t, s) {
		if want := map[bool]study.State{true: study.Interrupted,
			false: study.Done}[r.Cell.Labels["seed"] == "0"]; r.State != want {
			t.Errorf("%s is %s: %s", r.Cell.ID, r.State, r.Err)
		}
	}
	if out, err := run(t, s, standIns()); err != nil || out.Done != 6 {
		t.Errorf("the next time %+v, %v", out, err)
	}
}

// TestDamagedEvaluation checks that a damaged evaluation.json makes its cell unreadable.
func TestDamagedEvaluation(t *testing.T) {
	s := quantizes(t, quantizing+asking(t))
	c := s.Cells[0]
	trained(t, c.Dir)
	if _, err := run(t, s,
		study.RunOptions{Command: standIns().Command, Tool: []string{"sh", "-c", "exit 1"}}); err != nil {
		t.Fatal(err)
	}
	accounts, err := filepath.Glob(filepath.Join(c.Dir, "evaluations", "*", "evaluation.json"))
	if err != nil || len(accounts) != 1 {
		t.Fatalf("%v, %v", accounts, err)
	}
	if err := os.Remove(filepath.Join(c.Dir, "failed.json")); err != nil {
		t.Fatal(err)
	}
	write(t, accounts[0], "{")
	if r := results(t, s)[0]; !r.Unreadable || r.Trained() {
		t.Errorf("%s %q: unreadable %v, with the numbers %v", r.State, r.Err, r.Unreadable, r.Summary)
	}
}

// TestStaleSource checks that a model is quantized from the run that replaces a stale one, not from
// the stale one.
func TestStaleSource(t *testing.T) {
	testlevel.Long(t, "builds plugins")
	s := quantizes(t, strings.Replace(quantizing, "parallel = 1", "parallel = 2", 1))
	full := s.Cells[0].Dir
	trained(t, full)
	lock, err := rundir.At(full).Lock().Lock() // held by a process whose parent has died
	if err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(time.Second, func() { _ = lock.Unlock() })
	o := standIns()
	o.Survey = func(_ context.Context, list []*config.Config) []config.Finding {
		found := make([]config.Finding, len(list))
		for i, c := range list {
			if c.Quantizer.Weights == nil {
				found[i].Stale = "a plugin has changed"
			}
		}
		return found
	}
	if _, err := run(t, s, o); err != nil {
		t.Fatal(err)
	}
	sources, err := os.ReadFile("sources")
	if err != nil || strings.Contains(string(sources), `"val_loss": 1`) ||
		!strings.Contains(string(sources), `"val_loss": 2`) {
		t.Errorf("quantized from:\n%s (%v)", sources, err)
	}
}

// TestDeleteCheckpoints checks that the checkpoints of a cell are deleted when it is done, unless
// other cells are made from it.
func TestDeleteCheckpoints(t *testing.T) {
	text := strings.Replace(quantizing, "parallel = 1", "parallel = 1\ncheckpoints = \"delete\"", 1)
	s := quantizes(t, strings.Replace(text, `{label = "full"}`,
		`{label = "full"}, {label = "other", set = {seed = 1}}`, 1))
	o := standIns()
	state := checkpoint.State{Step: 1}
	if _, err := checkpoint.Save(t.Context(), vfs.At("saved"), state); err != nil {
		t.Fatal(err)
	}
	o.Command[2] = `cp -r saved $(dirname "$1")/checkpoints; ` + o.Command[2]
	if _, err := study.Run(t.Context(), s, o); err != nil {
		t.Fatal(err)
	}
	for _, c := range s.Cells {
		if c.Quantize != nil {
			continue
		}
		files, err := os.ReadDir(filepath.Join(c.Run, "checkpoints"))
		if full := c.Labels["method"] == "full"; full != (len(files) == 1) || err != nil {
			t.Errorf("%s: %v, %v", c.Labels["method"], files, err)
		}
	}
}

// TestDeletedCheckpoints checks that a study does nothing if models are needed whose checkpoints it
// has deleted: for another evaluation, or to make another cell. Once their directories are deleted,
// they are trained again.
func TestDeletedCheckpoints(t *testing.T) {
	text := strings.Replace(quantizing, "parallel = 1", "checkpoints = \"delete\"", 1)
	text = text[:strings.Index(text, `, {label = "RTN"`)] + "]\n"
	more := asking(t)
	for name, now := range map[string]string{"another evaluation": text + more,
		"another cell": strings.Replace(text, `"full"}`, `"full"}, {label = "RTN", `+
			`set = {quantizer = {plugin = "quest", bits = 4}}, quantize = "rtn"}`, 1)} {
		s := quantizes(t, text)
		o := standIns()
		state := checkpoint.State{Step: 1}
		if _, err := checkpoint.Save(t.Context(), vfs.At("saved"), state); err != nil {
			t.Fatal(err)
		}
		o.Command[2] = `cp -r saved $(dirname "$1")/checkpoints; ` + o.Command[2]
		if _, err := run(t, s, o); err != nil {
			t.Fatal(err)
		}
		write(t, "q.toml", now)
		s = load(t, "q.toml")
		if _, err := run(t, s, o); err == nil ||
			!strings.Contains(err.Error(), "the checkpoints of 1 cells were deleted") ||
			!strings.Contains(err.Error(), s.Cells[0].Dir) {
			t.Errorf("%s: %v", name, err)
		}
		if files, _ := filepath.Glob(filepath.Join(s.Out, "cells", "*", "failed.json")); files != nil {
			t.Errorf("%s: failed %v", name, files)
		}
		if err := os.RemoveAll(s.Cells[0].Dir); err != nil {
			t.Fatal(err)
		}
		if _, err := run(t, s, o); err != nil {
			t.Errorf("%s, with the cell's directory deleted: %v", name, err)
		}
	}
}

// TestDivergedLate checks that a cell whose validation loss is not finite counts as diverged, and
// is asked no questions, and that the cells that are made from it are not made, and diverged, too.
func TestDivergedLate(t *testing.T) {
	s := quantizes(t, strings.Replace(quantizing, `{label = "full"}`,
		`{label = "full"}, {label = "QAT", init = {method = "full"}, set = {seed = 1}}`, 1)+asking(t))
	o := standIns()
	o.Command[2] = strings.Replace(o.Command[2], `"val_loss": 2`, `"val_loss": "NaN"`, 1)
	o.Tool[2] = "echo $1 >> asked; exit 1"
	for _, retry := range []bool{false, true} {
		o.Retry = retry
		if out, err := run(t, s, o); err != nil || out.Done != 1 || out.Failed != 3 {
			t.Fatalf("%+v, %v", out, err)
		}
		for i, r := range results(t, s) {
			v, ok := r.Value("quiz.acc")
			if !r.Diverged || !ok || v == v || (r.State == study.Done) != (i == 0) ||
				i > 0 && r.Err != "its source model diverged: full" {
				t.Errorf("%s: %s, %v, %s", r.Cell.ID, r.State, v, r.Err)
			}
		}
		if asked, err := os.ReadFile("asked"); err == nil {
			t.Errorf("cage %s was run", asked)
		}
	}
}
