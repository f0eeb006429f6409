package study_test

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/cage-qat/cage/host/study"
)

// A process that crashes fails its cell alone; tried again, it goes on to the end.
func TestCrashingCell(t *testing.T) {
	path := command(t)
	s := tiny(t, "", "train.steps=150", "train.checkpoint_every=2")
	// The shell writes down its process number, which is that of the training afterwards.
	o := study.RunOptions{Command: []string{"sh", "-c", `echo $$ > "$1.pid"; exec '` + path + `' train "$@"`, "sh"}}
	victim := s.Cells[1]
	var killing sync.WaitGroup
	killing.Go(func() {
		awaitFile(t, filepath.Join(victim.Dir, "metrics.jsonl"), `"step":20`)
		pid, err := os.ReadFile(study.CellConfigPath(victim.Dir) + ".pid")
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
	if _, err := os.Stat(study.FailedPath(victim.Dir)); !errors.Is(err, os.ErrNotExist) {
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

// A process that is killed when all is written has done its work: the cell is done, and no
// account of a failure lies beside its summary.
func TestKilledAfterTheEnd(t *testing.T) {
	s := tiny(t, "")
	o := study.RunOptions{
		Command: []string{"sh", "-c", `echo '{"completed": true, "val_loss": 1}' > "$(dirname "$0")/summary.json"; kill -KILL $$`},
		Only:    map[string][]string{"seed": {"0"}, "method": {"STE"}},
	}
	out, err := run(t, s, o)
	if want := (study.Outcome{Cells: 1, Done: 1, Trained: 1}); err != nil || out != want {
		t.Fatalf("%+v, %v, want %+v", out, err, want)
	}
	if _, err := os.Stat(study.FailedPath(s.Cells[0].Dir)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("there is an account of a failure: %v", err)
	}
}
