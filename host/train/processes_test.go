package train_test

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cage-qat/cage/host/testing/testrun"
	"github.com/cage-qat/cage/host/train"
	"github.com/cage-qat/cage/host/train/checkpoint"
	"github.com/cage-qat/cage/host/train/config"
	"github.com/cage-qat/cage/host/train/plugin"
	"github.com/cage-qat/cage/host/train/rundir"
	"github.com/cage-qat/cage/internal/testing/testlevel"
)

// TestKilledAtAnyMoment kills the process of a training with SIGKILL repeatedly, each time at a
// random moment after it has saved a new checkpoint, and resumes it. The run must end with the same
// bits as an undisturbed run.
func TestKilledAtAnyMoment(t *testing.T) {
	testlevel.Long(t, "starts and kills processes")
	t.Run("plain", func(t *testing.T) {
		whole := testrun.Config(t, "train.checkpoint_every=2", "train.keep=1")
		killed := testrun.Elsewhere(t, whole)
		killAndCompare(t, whole, killed)
	})
	t.Run("accumulated, with skipped steps", func(t *testing.T) {
		runs := poisoned(t, 2, "train.batch=2", "train.accumulate=2", "train.max_skipped=20",
			"train.checkpoint_every=3")
		killAndCompare(t, runs[0], runs[1])
		if last := records(t, runs[1].Train.Out); last[len(last)-1].Skipped == 0 {
			t.Error("no step was skipped")
		}
	})
}

// TestKilledBesideRefreshes checks the same with refreshes that are computed beside the steps, and
// during most checkpoints.
func TestKilledBesideRefreshes(t *testing.T) {
	testlevel.Long(t, "starts and kills processes")
	for name, overrides := range lateRefreshes {
		t.Run(name, func(t *testing.T) {
			whole := testrun.Config(t, append(overrides, "train.checkpoint_every=3", "train.keep=1")...)
			killAndCompare(t, whole, testrun.Elsewhere(t, whole))
		})
	}
}

// killAndCompare runs whole undisturbed, and killed with kills. On a busy machine a run may end
// before the test sees its checkpoints; then it starts again.
func killAndCompare(t *testing.T, whole, killed *config.Config) {
	t.Helper()
	random := rand.New(rand.NewPCG(3, 4))
	kills, attempts := 0, 1
	finder := testrun.Finder(t)
	checkpoints := killed.Train.Steps / killed.Train.CheckpointEvery
	for rounds := 0; ; rounds++ {
		if rounds > checkpoints+1 { // each round adds a checkpoint or ends the run
			t.Fatalf("the run of %d checkpoints does not come to its end", checkpoints)
		}
		before := newest(t, killed)
		h := startHost(t, killed, finder)
		h.await(t, "a new checkpoint", func() bool { return newest(t, killed) > before })
		time.Sleep(time.Duration(random.Int64N(int64(15 * time.Millisecond))))
		if !h.kill(t) {
			if code := h.cmd.ProcessState.ExitCode(); code != 0 {
				t.Fatalf("the host ended with exit code %d", code)
			}
			if kills >= 2 {
				break
			}
			if attempts == 10 {
				t.Fatalf("the run was killed %d times only, at the last of %d attempts", kills, attempts)
			}
			if err := os.RemoveAll(killed.Train.Out); err != nil {
				t.Fatal(err)
			}
			if _, err := os.Stat(whole.Train.Out); err == nil { // both continue from the same directory
				if err := os.CopyFS(killed.Train.Out, os.DirFS(whole.Train.Out)); err != nil {
					t.Fatal(err)
				}
			}
			kills, rounds, attempts = 0, -1, attempts+1
			continue
		}
		kills++
	}
	t.Logf("killed %d times", kills)
	testrun.Train(t, whole, train.Options{Resume: true})
	testrun.SameRun(t, "undisturbed and killed", whole.Train.Out, killed.Train.Out)
}

// newest returns the step of the newest checkpoint of a run, or 0 if there is none.
func newest(t *testing.T, cfg *config.Config) int {
	t.Helper()
	entries, err := checkpoint.List(rundir.At(cfg.Train.Out).Checkpoints())
	if err != nil {
		t.Fatal(err)
	}
	if len(entries) == 0 {
		return 0
	}
	return entries[len(entries)-1].Step
}

// TestSignals interrupts the built command during a training. It must save a checkpoint, name
// --resume, and end with the exit code of an interrupted command. The checkpoint must equal that of
// a run that stopped there by itself.
func TestSignals(t *testing.T) {
	testlevel.Long(t, "builds the command")
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
				t.Fatalf("the newest checkpoint is of step %d, the last record of step %d", n,
					list[len(list)-1].Step)
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

// interrupt runs the command, sends it a signal after a few steps of training, and returns its exit
// code and output.
func interrupt(
	t *testing.T, cage string, cfg *config.Config, finder *plugin.Finder, signal syscall.Signal,
) (code int, output string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "run.toml")
	write(t, path, cfg.Encode())
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

// watcher is a console that checks at every write that no plugin process is running.
type watcher struct {
	t        *testing.T
	recorder testrun.Recorder
	looks    int
}

func (w *watcher) Write(p []byte) (int, error) {
	w.looks++
	if list := testrun.Alive(w.recorder.Processes(w.t)); len(list) > 0 {
		w.t.Errorf("at %q the plugin processes %v run", p, list)
	}
	return len(p), nil
}

// TestPluginsEndBeforeTraining checks that every plugin process of the run has ended when the first
// step is reported, so that nothing that happens to a plugin later can matter. host/train/build
// tests what happens to a plugin between handing over its programs and its end.
func TestPluginsEndBeforeTraining(t *testing.T) {
	recorder := testrun.NewRecorder(t)
	w := &watcher{t: t, recorder: recorder}
	testrun.Train(t, testrun.Config(t), train.Options{Finder: recorder.Finder, Console: w})
	if n := len(recorder.Processes(t)); n != 2 || w.looks < 20 {
		t.Errorf("%d plugin processes started, want quest and adamw; looked %d times, want at least "+
			"once a step", n, w.looks)
	}
}

// TestPluginsEndWithTheHost kills a host that waits for a plugin to start, and hosts at random
// moments of their start.
func TestPluginsEndWithTheHost(t *testing.T) {
	testlevel.Long(t, "starts and kills processes")
	t.Run("while a plugin hangs", func(t *testing.T) {
		if runtime.GOOS != "linux" {
			t.Skip("a plugin that does not watch its host ends with it only on Linux")
		}
		recorder := testrun.NewRecorder(t)
		recorder.Script(t, "quest", "exec sleep 600")
		h := startHost(t, testrun.Config(t), recorder.Finder)
		h.await(t, "both plugins", func() bool { return len(recorder.Processes(t)) == 2 })
		if n := len(testrun.Alive(recorder.Processes(t))); n != 2 {
			t.Errorf("%d plugin processes run, want 2", n)
		}
		h.kill(t)
		testrun.AwaitDeath(t, recorder.Processes(t), 2*time.Second)
	})
	t.Run("at random", func(t *testing.T) {
		random := rand.New(rand.NewPCG(5, 6))
		recorder := testrun.NewRecorder(t)
		for range 6 {
			started := len(recorder.Processes(t))
			h := startHost(t, testrun.Config(t), recorder.Finder)
			h.await(t, "a plugin", func() bool { return len(recorder.Processes(t)) > started })
			time.Sleep(time.Duration(random.Int64N(int64(60 * time.Millisecond))))
			h.kill(t)
			testrun.AwaitDeath(t, recorder.Processes(t), 2*time.Second)
		}
	})
}
