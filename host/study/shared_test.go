package study_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cage-qat/cage/host/study"
	"github.com/cage-qat/cage/host/testing/testrun"
	"github.com/cage-qat/cage/host/train/config"
	"github.com/cage-qat/cage/host/train/rundir"
	"github.com/cage-qat/cage/internal/testing/testlevel"
)

// manyCells writes a study of twelve cells that take no time.
func manyCells(t *testing.T) *study.Study {
	t.Helper()
	t.Chdir(t.TempDir())
	write(t, "many.toml", strings.Replace(fmt.Sprintf(twoCells, "out"), "[0, 1]",
		"[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]", 1))
	return load(t, "many.toml")
}

// counted extends trainer: it counts in the cell's directory how often the cell is trained.
const counted = `echo . >> "$(dirname "$1")/count"
` + trainer

// together runs a study in several runners at once.
func together(t *testing.T, o study.RunOptions, runners int) []study.Outcome {
	t.Helper()
	outcomes := make([]study.Outcome, runners)
	var all sync.WaitGroup
	for i := range outcomes {
		s := load(t, "many.toml")
		all.Go(func() {
			var err error
			if outcomes[i], err = run(t, s, o); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	return outcomes
}

// timesTrained returns how often each cell was trained.
func timesTrained(t *testing.T, s *study.Study) (list []int) {
	t.Helper()
	for _, c := range s.Cells {
		text, err := os.ReadFile(filepath.Join(c.Dir, "count"))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
		list = append(list, bytes.Count(text, []byte("\n")))
	}
	return list
}

// TestShared checks that each cell is trained by one of several runners, and that all wait for the
// end. A failing cell is tried once. With Retry, each runner retries it at most once, and not if
// another has done so since it began.
func TestShared(t *testing.T) {
	s := manyCells(t)
	o := study.RunOptions{Command: []string{"sh", "-c", "sleep 0.02; set -- \"$1\" --fail\n" + counted,
		"sh"}, Share: true}
	check := func(trained, failed, least, most int) {
		t.Helper()
		sum := 0
		for _, out := range together(t, o, 3) {
			sum += out.Trained
			if out.Done != 12-failed || out.Failed != failed || out.Cells != 12 {
				t.Errorf("%+v", out)
			}
		}
		times := timesTrained(t, s)
		if n := times[1]; n < least || n > most {
			t.Errorf("the cell that fails was tried %d times, want %d to %d", n, least, most)
		}
		times[1] = 1
		if diff := cmp.Diff(slices.Repeat([]int{1}, 12), times); diff != "" || sum != trained {
			t.Errorf("%d cells were trained, want %d; how often each (-want +got):\n%s", sum, trained, diff)
		}
	}
	check(11, 1, 1, 1)
	o.Retry = true
	check(0, 1, 2, 4)
	o.Command[2] = "set -- \"$1\"\n" + counted
	check(1, 0, 3, 5)
}

// TestSharedStale checks that stale cells are put aside by one of the runners, and trained once.
func TestSharedStale(t *testing.T) {
	testlevel.Long(t, "it waits for processes")
	s := manyCells(t)
	o := study.RunOptions{Command: []string{"sh", "-c", "sleep 0.02\n" + counted, "sh"}, Share: true}
	if out := together(t, o, 1)[0]; out.Done != 12 {
		t.Fatalf("%+v", out)
	}
	for _, c := range s.Cells {
		write(t, filepath.Join(c.Dir, "old"), "")
	}
	o.Survey = staleIfOld
	sum := 0
	for _, out := range together(t, o, 3) {
		sum += out.Trained
	}
	if diff := cmp.Diff(slices.Repeat([]int{1}, 12), timesTrained(t, s)); diff != "" || sum != 12 {
		t.Errorf("%d cells were trained, want 12; how often each (-want +got):\n%s", sum, diff)
	}
	if list, err := filepath.Glob("out/stale/*"); err != nil || len(list) != 12 {
		t.Errorf("put aside: %q, %v", list, err)
	}
}

// TestSharedOrAlone checks that a process that shares a study excludes one that does not, and vice
// versa.
func TestSharedOrAlone(t *testing.T) {
	testlevel.Long(t, "it waits for processes")
	s := manyCells(t)
	for _, share := range []bool{true, false} {
		var other error
		script := `touch began; while [ ! -e tried ]; do sleep 0.01; done` + "\n" + trainer
		o := study.RunOptions{Command: []string{"sh", "-c", script, "sh"}, Share: share,
			Only: map[string][]string{"seed": {map[bool]string{true: "0", false: "1"}[share]}}}
		var second sync.WaitGroup
		second.Go(func() {
			awaitFile(t, "began", "")
			_, other = run(t, s, study.RunOptions{Share: !share})
			write(t, "tried", "")
		})
		_, err := run(t, s, o)
		second.Wait()
		if err != nil {
			t.Error(err)
		}
		want := map[bool]string{true: "with --share: pass --share to join it",
			false: "without --share"}[share]
		if !errors.Is(other, study.ErrLocked) || !strings.Contains(fmt.Sprint(other), want) {
			t.Errorf("shared %v: %v", share, other)
		}
		if err := errors.Join(os.Remove("began"), os.Remove("tried")); err != nil {
			t.Fatal(err)
		}
	}
}

// TestSharedAndKilled runs a study with quantized cells and evaluations in three processes, and
// kills one while it trains. The report must be that of one process.
func TestSharedAndKilled(t *testing.T) {
	path := command(t)
	s := tiny(t, quiz(t), "train.steps=60", "train.checkpoint_every=4", "train.keep=1")
	whole := undisturbed(t, path)
	var outputs [3]bytes.Buffer
	var runners []*exec.Cmd
	for i := range outputs {
		cmd := exec.Command(path, "study", "run", "tiny.toml", "--share", "--parallel", "1")
		cmd.Stdout, cmd.Stderr = &outputs[i], &outputs[i]
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		runners = append(runners, cmd)
		if i == 0 { // so that this process has the first cell
			awaitFile(t, filepath.Join(s.Cells[0].Dir, "metrics.jsonl"), `"step":4`)
		}
	}
	if state := states(t, s)[s.Label(s.Cells[0])]; state != study.Running && state != study.Done {
		t.Errorf("the first cell is %s", state)
	}
	_ = runners[0].Process.Kill()
	for i, cmd := range runners {
		if err := cmd.Wait(); err != nil && i > 0 {
			t.Errorf("%v\n%s", err, &outputs[i])
		}
	}
	for i, r := range results(t, s) {
		if r.State != study.Done {
			t.Errorf("%s is %s: %s", r.Cell.ID, r.State, r.Err)
		} else if r.Cell.Quantize == nil {
			testrun.SameRun(t, r.Cell.ID, whole[i].Cell.Dir, r.Cell.Dir)
		}
	}
	sameReport(t, path, "whole.toml", "tiny.toml")
}

// staleIfOld is a survey that finds runs stale if they have a file named old.
func staleIfOld(_ context.Context, list []*config.Config) []config.Finding {
	out := make([]config.Finding, len(list))
	for i, c := range list {
		if _, err := os.Stat(filepath.Join(c.Train.Out, "old")); err == nil {
			out[i].Stale = "it is old"
		}
	}
	return out
}

// TestOneCell checks that a command for one cell stops with a checkpoint and the exit code for
// interruptions, continues when it is run again, and first trains the model that the cell needs.
func TestOneCell(t *testing.T) {
	path := command(t)
	s := tiny(t, quiz(t), "train.steps=60", "train.checkpoint_every=0")
	cell := func(id string, stop func(*os.Process)) int {
		cmd := exec.Command(path, "study", "cell", "tiny.toml", "--id", id)
		out := &bytes.Buffer{}
		cmd.Stdout, cmd.Stderr = out, out
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if stop != nil {
			stop(cmd.Process)
		}
		_ = cmd.Wait()
		t.Log(out)
		return cmd.ProcessState.ExitCode()
	}
	first := s.Cells[0]
	if code := cell(first.ID, func(p *os.Process) {
		awaitFile(t, filepath.Join(first.Dir, "metrics.jsonl"), `"step":2`)
		_ = p.Signal(syscall.SIGTERM)
	}); code != 130 {
		t.Errorf("exit code %d after SIGTERM, want 130", code)
	}
	if list, err := filepath.Glob(filepath.Join(rundir.At(first.Dir).Checkpoints().Name,
		"*")); err != nil || len(list) == 0 {
		t.Errorf("there is no checkpoint: %v", err)
	}
	made := s.Cells[slices.IndexFunc(s.Cells, func(c study.Cell) bool { return c.Quantize != nil })]
	for _, id := range []string{first.ID, first.ID, made.ID} {
		if code := cell(id, nil); code != 0 {
			t.Errorf("%s: exit code %d", id, code)
		}
	}
	done := 0
	for _, r := range results(t, s) {
		if r.State == study.Done {
			done++
		}
	}
	if done != 3 { // the first, the quantized one, and its source in full precision
		t.Errorf("%d cells are done, want 3", done)
	}
}
