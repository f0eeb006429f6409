package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cage-qat/cage/host/train/checkpoint"
	"github.com/cage-qat/cage/host/train/rundir"
	"github.com/cage-qat/cage/internal/testing/testlevel"
)

// toy is a training whose steps cost almost nothing and print a line each.
const toy = `[model]
kind = "toy"
start = 0.9
[train]
steps = %d
log_every = 1
out = %q
[schedule]
kind = "constant"
rate = 0.1
[quantizer.weights]
plugin = "grid"
[optimizer]
plugin = "sgd"
[method]
form = "off"
`

// endless is a number of steps that no test completes.
const endless = 1_000_000_000

// command runs this test binary as cage, with all plugins available.
func command(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "cage")
	// not a symbolic link, because a study starts the target of the link
	if err := os.Link(self, path); err != nil {
		text, err := os.ReadFile(self)
		if err := errors.Join(err, os.WriteFile(path, text, 0o755)); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command(path, args...)
	cmd.Env = append(os.Environ(), "CAGE_PLUGIN_PATH="+pluginsDir(t))
	cmd.Dir = t.TempDir()
	return cmd
}

// toyRun writes the configuration of a training, and returns its path and the run directory.
func toyRun(t *testing.T, steps int) (file, dir string) {
	t.Helper()
	file, dir = filepath.Join(t.TempDir(), "toy.toml"), filepath.Join(t.TempDir(), "run")
	if err := os.WriteFile(file, fmt.Appendf(nil, toy, steps, dir), 0o644); err != nil {
		t.Fatal(err)
	}
	return file, dir
}

// head starts a command with both outputs in a pipe, and closes the reading end after n lines.
func head(t *testing.T, cmd *exec.Cmd, n int) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr = w, w
	if err := errors.Join(cmd.Start(), w.Close()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	for lines := bufio.NewScanner(r); n > 0 && lines.Scan(); n-- {
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
}

// code waits for the end of a command and returns its exit code, or −1 after a signal.
func code(t *testing.T, cmd *exec.Cmd) int {
	t.Helper()
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	select {
	case err := <-ended:
		if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
			t.Fatal(err)
		}
	case <-time.After(time.Minute):
		_ = cmd.Process.Kill()
		<-ended
		t.Fatalf("%v does not end", cmd.Args)
	}
	return cmd.ProcessState.ExitCode()
}

// newestStep returns the step of the newest checkpoint, or 0 if there is none.
func newestStep(t *testing.T, dir string) int {
	t.Helper()
	list, err := checkpoint.List(rundir.At(dir).Checkpoints())
	if err != nil {
		t.Fatal(err)
	}
	if len(list) == 0 {
		return 0
	}
	return list[len(list)-1].Step
}

// TestTrainingOutlastsItsReader checks that a training continues without a reader of its output,
// and saves if interrupted: Ctrl-C in `cage train RUN.toml 2>&1 | tee log` ends tee first.
func TestTrainingOutlastsItsReader(t *testing.T) {
	t.Run("to its end", func(t *testing.T) {
		t.Parallel()
		file, dir := toyRun(t, 300)
		cmd := command(t, "train", file)
		head(t, cmd, 3)
		if got := code(t, cmd); got != 0 {
			t.Errorf("exit code %d, want 0", got)
		}
		if got := newestStep(t, dir); got != 300 {
			t.Errorf("the newest checkpoint is of step %d, want 300", got)
		}
	})
	t.Run("interrupted", func(t *testing.T) {
		t.Parallel()
		file, dir := toyRun(t, endless)
		cmd := command(t, "train", file)
		head(t, cmd, 3)
		size := awaitGrowth(t, rundir.At(dir).Metrics().Name, 0) // it continues to write
		awaitGrowth(t, rundir.At(dir).Metrics().Name, size)
		if err := cmd.Process.Signal(os.Interrupt); err != nil {
			t.Fatal(err)
		}
		if got := code(t, cmd); got != exitInterrupted {
			t.Errorf("exit code %d, want %d", got, exitInterrupted)
		}
		if newestStep(t, dir) == 0 {
			t.Error("there is no checkpoint")
		}
	})
}

// awaitGrowth waits until a file has more than size bytes, and returns its new size.
func awaitGrowth(t *testing.T, path string, size int64) int64 {
	t.Helper()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if info, err := os.Stat(path); err == nil && info.Size() > size {
			return info.Size()
		}
	}
	t.Fatalf("%s does not grow", path)
	return 0
}

func TestStudyOutlastsItsReader(t *testing.T) {
	testlevel.Long(t, "it trains the cells of a study")
	t.Parallel()
	file, _ := toyRun(t, 5)
	study := filepath.Join(t.TempDir(), "study.toml")
	text := fmt.Sprintf("base = %q\n[study]\nname = \"s\"\nout = %q\n[[study.axes]]\nname = "+
		"\"rate\"\nkey = \"schedule.rate\"\nvalues = [0.1, 0.2]\n", file,
		filepath.Join(t.TempDir(), "out"))
	if err := os.WriteFile(study, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	cmd := command(t, "study", "run", study)
	head(t, cmd, 1)
	if got := code(t, cmd); got != 0 {
		t.Errorf("exit code %d, want 0", got)
	}
	status := command(t, "study", "status", study)
	if out, err := status.CombinedOutput(); err != nil ||
		!bytes.Contains(out, []byte("2 of 2 cells done")) {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestDataOutlastItsReader(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, name := range []string{"a.txt", "b.txt"} {
		if err := os.WriteFile(filepath.Join(dir, name), bytes.Repeat([]byte("some text\n"), 1000),
			0o644); err != nil {
			t.Fatal(err)
		}
	}
	out := filepath.Join(dir, "out")
	cmd := command(t, "data", "prepare", filepath.Join(dir, "a.txt"), "--validation-text",
		filepath.Join(dir, "b.txt"), "--out", out)
	head(t, cmd, 0)
	if got := code(t, cmd); got != 0 {
		t.Errorf("exit code %d, want 0", got)
	}
	if _, err := os.Stat(filepath.Join(out, "train.tokens")); err != nil {
		t.Error(err)
	}
}

// TestShortCommandsEndWithTheirReader checks that SIGPIPE ends a command that only prints, without
// a message, if its reader has ended.
func TestShortCommandsEndWithTheirReader(t *testing.T) {
	t.Parallel()
	var stderr bytes.Buffer
	cmd := command(t, "config")
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr = w, &stderr
	if err := errors.Join(r.Close(), cmd.Start(), w.Close()); err != nil {
		t.Fatal(err)
	}
	code(t, cmd)
	if state := cmd.ProcessState.Sys().(syscall.WaitStatus); !state.Signaled() ||
		state.Signal() != syscall.SIGPIPE {
		t.Errorf("it ended with %v, want SIGPIPE", cmd.ProcessState)
	}
	if stderr.Len() > 0 {
		t.Errorf("standard error %q", stderr.String())
	}
}

// TestFullDisk checks that a command that cannot write its result fails, even without a message.
func TestFullDisk(t *testing.T) {
	if _, err := os.Stat("/dev/full"); err != nil {
		t.Skip("there is no /dev/full here")
	}
	t.Parallel()
	for _, both := range []bool{false, true} {
		full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer full.Close()
		var stderr bytes.Buffer
		file, dir := toyRun(t, 5)
		cmd := command(t, "train", file)
		cmd.Stdout, cmd.Stderr = full, &stderr
		if both {
			cmd.Stderr = full
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if got := code(t, cmd); got != exitError {
			t.Errorf("both %v: exit code %d, want %d", both, got, exitError)
		}
		if !both && !strings.Contains(stderr.String(), "no space left") {
			t.Errorf("standard error %q", stderr.String())
		}
		if newestStep(t, dir) != 5 {
			t.Errorf("both %v: the training was not saved", both)
		}
	}
}

func TestThrottle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		due := throttle(time.Second)
		for i, want := range []bool{false, false, true, false, true} { // at 0, 0.5, 1, 1.5 … seconds
			if got := due(); got != want {
				t.Errorf("look %d: %v, want %v", i, got, want)
			}
			time.Sleep(time.Second / 2)
		}
	})
}
