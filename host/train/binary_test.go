package train_test

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cage-qat/cage/host/internal/testrun"
	"github.com/cage-qat/cage/host/train"
	"github.com/cage-qat/cage/host/train/config"
	"github.com/cage-qat/cage/host/train/plugin"
	"github.com/cage-qat/cage/host/train/rundir"
	"github.com/cage-qat/cage/internal/effort"
)

// TestSignals interrupts the built command in the middle of a training: it saves a
// checkpoint, says how to go on, and ends with the exit code of an interrupted
// command. The checkpoint is that of a run which stopped there by itself.
func TestSignals(t *testing.T) {
	effort.Long(t, "builds the command")
	cage, finder := testrun.Cage(t), testrun.Finder(t)
	for _, signal := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
		t.Run(signal.String(), func(t *testing.T) {
			cfg := testrun.Config(t, "train.steps=100000", "train.eval_every=0")
			code, output := interrupt(t, cage, cfg, finder, signal)
			if code != 130 || !strings.Contains(output, "--resume") {
				t.Fatalf("exit code %d, want 130; the output is\n%s", code, output)
			}
			n := newest(t, cfg)
			if list := records(t, cfg.Train.Out); n == 0 || n != list[len(list)-1].Step {
				t.Fatalf("the newest checkpoint is of step %d, the last record of step %d", n, list[len(list)-1].Step)
			}
			other := testrun.Elsewhere(t, cfg)
			_, err := train.Run(t.Context(), other, train.Options{Finder: finder, StopAfter: n})
			if !errors.Is(err, train.ErrInterrupted) {
				t.Fatal(err)
			}
			testrun.SameRun(t, "interrupted by a signal and stopped", cfg.Train.Out, other.Train.Out)
		})
	}
}

// interrupt runs the command, sends it a signal when it has trained a few steps, and
// returns its exit code and what it printed.
func interrupt(t *testing.T, cage string, cfg *config.Config, finder *plugin.Finder, signal syscall.Signal) (code int, output string) {
	t.Helper()
	text, err := cfg.Encode()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "run.toml")
	if err := os.WriteFile(path, text, 0o644); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	h := host{exec.Command(cage, "train", path), make(chan error, 1)}
	h.cmd.Env = append(os.Environ(), plugin.PathVariable+"="+finder.Dirs[0])
	h.cmd.Stdout, h.cmd.Stderr = &out, &out
	if err := h.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { h.ended <- h.cmd.Wait() }()
	h.await(t, "a few steps", func() bool {
		data, _ := rundir.At(cfg.Train.Out).Metrics().ReadFile()
		return bytes.Count(data, []byte{'\n'}) > 3
	})
	if err := h.cmd.Process.Signal(signal); err != nil {
		t.Fatal(err)
	}
	select {
	case <-h.ended:
	case <-time.After(30 * time.Second):
		h.kill(t)
		t.Fatalf("the command does not end after %v", signal)
	}
	return h.cmd.ProcessState.ExitCode(), out.String()
}
