package study_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/gofrs/flock"
	"github.com/google/go-cmp/cmp"

	"github.com/cage-qat/cage/host/study"
	"github.com/cage-qat/cage/host/testing/testrun"
	"github.com/cage-qat/cage/host/train/metrics"
)

// TestKilledAtAnyMoment kills the command with SIGKILL at random moments until the study ends, and
// checks that the metrics and summaries are those of an undisturbed study. The times until the
// kills are relative to the time that the undisturbed study takes on this machine.
func TestKilledAtAnyMoment(t *testing.T) {
	path := command(t)
	s := tiny(t, quiz(t), "train.steps=100", "train.checkpoint_every=2", "train.keep=1")
	began := time.Now()
	whole := undisturbed(t, path)
	alone := time.Since(began)
	const soon = 10 // kills before the study can end
	random := rand.New(rand.NewPCG(5, 6))
	kills, trainingsKilled := 0, 0
	for round := 0; ; round++ {
		if round == 60 {
			t.Fatalf("the study does not come to its end: %v", states(t, s))
		}
		limit := alone / 5
		if round >= soon {
			limit <<= (round - soon) / 3
		}
		ended, trainings := disturbed(t, path, time.Duration(random.Int64N(int64(limit))), round%2 == 1)
		trainingsKilled += trainings
		if ended {
			break
		}
		kills++
		if round == 5 {
			released(t, s)
		}
	}
	t.Logf("killed %d times, %d trainings with it", kills, trainingsKilled)
	if kills < soon/2 {
		t.Errorf("killed %d times only", kills)
	}
	for i, r := range results(t, s) {
		for _, name := range []string{"val_loss", "quiz.acc"} {
			if _, ok := r.Summary[name]; !ok {
				t.Errorf("%s has no %s", r.Cell.ID, name)
			}
		}
		if r.State != study.Done {
			t.Errorf("%s is %s: %s", r.Cell.ID, r.State, r.Err)
			continue
		}
		w := whole[i]
		if r.Cell.ID != w.Cell.ID {
			t.Fatalf("cells %s and %s", r.Cell.ID, w.Cell.ID)
		}
		if r.Cell.Quantize == nil { // of quantized cells, only the summaries are compared
			testrun.SameRun(t, r.Cell.ID, w.Cell.Dir, r.Cell.Dir)
		}
		if diff := cmp.Diff(timeless(w.Summary), timeless(r.Summary)); diff != "" {
			t.Errorf("%s: summaries (-undisturbed +killed):\n%s", r.Cell.ID, diff)
		}
	}
	sameReport(t, path, "whole.toml", "tiny.toml")
}

// quiz returns part of a study file, with a task for evaluation and cells for quantization.
func quiz(t *testing.T) string {
	t.Helper()
	return `
[[study.cells]]
label = {method = "full precision"}
set = {quantizer = {plugin = "none"}}
[[study.cells]]
label = {method = "GPTQ"}
quantize = {method = "gptq", windows = 8}
[[study.tables]]
metric = "quiz.acc"
columns = ["method"]
over = ["seed"]
baseline = {method = "STE"}
` + asking(t)
}

// asking writes a task with its rows, and returns the part of a study file that evaluates it.
func asking(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	rows := ""
	for i := range 40 {
		rows += fmt.Sprintf(`{"word": "word %d", "ends": ["a", "bc"], "right": %d}`+"\n", i, i%2)
	}
	write(t, filepath.Join(dir, "quiz_test.jsonl"), rows)
	write(t, filepath.Join(dir, "quiz.toml"), `name = "quiz"
kind = "choices"
split = "test"
columns = ["word", "ends", "right"]
question = ["{{ word }}"]
choices_of = "ends"
gold = "{{ right }}"
metrics = ["acc", "acc_norm"]
`)
	return fmt.Sprintf(`
[[study.evaluations]]
tasks = %q
data = %q
`, filepath.Join(dir, "quiz.toml"), dir)
}

// sameReport checks that the files of the reports of two studies are equal, byte for byte.
func sameReport(t *testing.T, path, a, b string) {
	t.Helper()
	var files [2]map[string]string
	for i, name := range []string{a, b} {
		dir := fmt.Sprintf("report-%d", i)
		if out, err := exec.Command(path, "study", "report", name, "--out", dir).
			CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		files[i] = map[string]string{}
		err := filepath.WalkDir(dir, func(file string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			text, err := os.ReadFile(file)
			files[i][strings.TrimPrefix(file, dir)] = string(text)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if len(files[0]) < 3 {
		t.Errorf("a report of %d files only", len(files[0]))
	}
	if diff := cmp.Diff(files[0], files[1]); diff != "" {
		t.Errorf("reports (-undisturbed +killed):\n%s", diff)
	}
}

// disturbed runs the study and kills the command after a time. If trainingsToo is set, it also
// kills the trainings that the command has started, which would otherwise save checkpoints. It
// reports whether the command ended before that, and how many trainings were killed.
func disturbed(
	t *testing.T, path string, wait time.Duration, trainingsToo bool,
) (whole bool, trainings int) {
	t.Helper()
	cmd := exec.Command(path, "study", "run", "tiny.toml")
	out := &strings.Builder{}
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	killed := false
	select {
	case err := <-ended:
		ended <- err
	case <-time.After(wait):
		started := children(cmd.Process.Pid)
		_ = cmd.Process.Kill()
		killed = true
		for _, pid := range started {
			if trainingsToo && syscall.Kill(pid, syscall.SIGKILL) == nil {
				trainings++
			}
		}
	}
	err := <-ended
	whole = !killed || cmd.ProcessState.Exited()
	if whole && err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return whole, trainings
}

// children returns the child processes of a process, if the system lists them.
func children(pid int) []int {
	var list []int
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, path := range tasks {
		text, _ := os.ReadFile(path)
		for _, field := range strings.Fields(string(text)) {
			if child, err := strconv.Atoi(field); err == nil {
				list = append(list, child)
			}
		}
	}
	return list
}

// undisturbed runs a copy of the study without interruption.
func undisturbed(t *testing.T, path string) []study.Result {
	t.Helper()
	text, err := os.ReadFile("tiny.toml")
	if err != nil {
		t.Fatal(err)
	}
	write(t, "whole.toml",
		strings.Replace(string(text), "[study]", "[study]\nname = \"tiny\"\nout = \"whole\"", 1))
	if out, err := exec.Command(path, "study", "run", "whole.toml").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	whole, err := study.Load("whole.toml")
	if err != nil {
		t.Fatal(err)
	}
	return results(t, whole)
}

func timeless(summary map[string]float64) map[string]float64 {
	out := maps.Clone(summary)
	maps.DeleteFunc(out, func(name string, _ float64) bool { return metrics.Timed(name) })
	return out
}

// released waits until no process trains any cell.
func released(t *testing.T, s *study.Study) {
	t.Helper()
	for _, c := range s.Cells {
		path := filepath.Join(c.Dir, ".lock")
		if _, err := os.Stat(path); err != nil {
			continue
		}
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		l := flock.New(path)
		if _, err := l.TryLockContext(ctx, 10*time.Millisecond); err != nil {
			t.Errorf("%s is still being trained: %v", c.ID, err)
		}
		l.Unlock()
		cancel()
	}
}

// TestCrashingCell checks that a crash fails only one cell, and that a retry completes the cell.
func TestCrashingCell(t *testing.T) {
	path := command(t)
	s := tiny(t, "", "train.steps=150", "train.checkpoint_every=2")
	// The shell writes its process ID to a file. The training gets the same ID, because of exec.
	o := study.RunOptions{Command: []string{"sh", "-c", `echo $$ > "$1.pid"; exec '` + path +
		`' train "$@"`, "sh"}}
	victim := s.Cells[1]
	var killing sync.WaitGroup
	killing.Go(func() {
		awaitFile(t, filepath.Join(victim.Dir, "metrics.jsonl"), `"step":20`)
		pid, err := os.ReadFile(filepath.Join(victim.Dir, "cell.toml.pid"))
		if err != nil {
			t.Error(err)
			return
		}
		number, err := strconv.Atoi(strings.TrimSpace(string(pid)))
		if err != nil {
			t.Error(err)
			return
		}
		if err := syscall.Kill(number, syscall.SIGKILL); err != nil {
			t.Error(err)
		}
	})
	out, err := run(t, s, o)
	killing.Wait()
	if want := (study.Outcome{Cells: 4, Done: 3, Failed: 1, Trained: 3}); err != nil || out != want {
		t.Fatalf("%+v, %v, want %+v", out, err, want)
	}
	if r := results(t, s)[1]; r.State != study.Failed || r.Err != "its process ended: signal: killed" {
		t.Errorf("%s: %s", r.State, r.Err)
	}
	o.Retry = true
	out, err = run(t, s, o)
	if want := (study.Outcome{Cells: 4, Done: 4, Trained: 1}); err != nil || out != want {
		t.Fatalf("%+v, %v, want %+v", out, err, want)
	}
	if _, err := os.Stat(filepath.Join(victim.Dir, "failed.json")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the failure of a cell that is done is still there: %v", err)
	}
}

func awaitFile(t *testing.T, path, text string) {
	t.Helper()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(time.Millisecond) {
		content, err := os.ReadFile(path)
		if err == nil && strings.Contains(string(content), text) {
			return
		}
	}
	t.Errorf("%s did not contain %s within a minute", path, text)
}

// TestKilledAfterTheEnd checks that a cell is done, and has no failed.json, if its process is
// killed after it has written everything.
func TestKilledAfterTheEnd(t *testing.T) {
	s := tiny(t, "")
	o := study.RunOptions{
		Command: []string{"sh", "-c",
			`echo '{"completed": true, "val_loss": 1}' > "$(dirname "$0")/summary.json"; kill -KILL $$`},
		Only: map[string][]string{"seed": {"0"}, "method": {"STE"}},
	}
	out, err := run(t, s, o)
	if want := (study.Outcome{Cells: 1, Done: 1, Trained: 1}); err != nil || out != want {
		t.Fatalf("%+v, %v, want %+v", out, err, want)
	}
	if _, err := os.Stat(filepath.Join(s.Cells[0].Dir, "failed.json")); !errors.Is(err,
		os.ErrNotExist) {
		t.Errorf("there is an account of a failure: %v", err)
	}
}
