package train_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/cage-qat/cage/host/testing/testrun"
	"github.com/cage-qat/cage/host/train"
	"github.com/cage-qat/cage/host/train/config"
	"github.com/cage-qat/cage/host/train/plugin"
	"github.com/cage-qat/cage/host/train/rundir"
	"github.com/cage-qat/cage/internal/testing/testlevel"
)

// processesOf returns the process IDs of an executable.
func processesOf(path string) (list []int) {
	links, _ := filepath.Glob("/proc/[0-9]*/exe")
	for _, link := range links {
		if to, err := os.Readlink(link); err == nil && to == path {
			pid, _ := strconv.Atoi(strings.Split(link, "/")[2])
			list = append(list, pid)
		}
	}
	return list
}

// lines is a log that can be searched.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lines) count(words string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.text.String(), words)
}

// TestOpaqueOptimizer checks that AdamW computed by a plugin's own process gives the same bits as
// AdamW as a program, with clipping, decay and correction; also if the run is stopped and resumed,
// and if the process is killed repeatedly.
func TestOpaqueOptimizer(t *testing.T) {
	exe, opaque := opaqueAdamW(t)
	for name, overrides := range map[string][]string{
		"correction": {"method.silence=0.5", "train.weight_decay=0.1", "train.clip=0.5"},
		"decay last": {"train.weight_decay=0.1", `train.decay="last"`, "train.accumulate=2"},
		"groups":     {`method.form="coupled"`},
	} {
		t.Run(name, func(t *testing.T) {
			group := `optimizer.groups=[{match="*norm*", rate=0.5}]`
			whole := testrun.Config(t, append(slices.Clone(overrides), `optimizer={plugin="adamw"}`,
				group)...)
			testrun.Train(t, whole, train.Options{})
			by := testrun.Config(t, append(slices.Clone(overrides), opaque, group)...)
			testrun.Train(t, by, train.Options{})
			sameTraining(t, "program and process", whole.Train.Out, by.Train.Out)

			parts := testrun.Elsewhere(t, by)
			runParts(t, parts, 3, 11)
			testrun.Train(t, testrun.Again(t, parts), train.Options{Resume: true})
			testrun.SameRun(t, "whole, and in parts", by.Train.Out, parts.Train.Out)
			if left := processesOf(exe.Path); len(left) > 0 {
				t.Errorf("the processes %v are still running", left)
			}
		})
	}

	t.Run("killed", func(t *testing.T) {
		whole := testrun.Config(t, opaque, "train.steps=200")
		testrun.Train(t, whole, train.Options{})
		killed, log := testrun.Elsewhere(t, whole), &lines{}
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		var killer sync.WaitGroup
		killer.Go(func() {
			for kills := 0; kills < 2 && ctx.Err() == nil; time.Sleep(time.Millisecond) {
				if !begun(killed) || log.count("will be repeated") < kills {
					continue // training has not begun, or the last kill has not been noticed
				}
				for _, pid := range processesOf(exe.Path) {
					if syscall.Kill(pid, syscall.SIGKILL) == nil {
						kills++
					}
				}
			}
		})
		testrun.Train(t, killed, train.Options{Logger: hclog.New(&hclog.LoggerOptions{Output: log})})
		stop()
		killer.Wait()
		if n := log.count("will be repeated"); n == 0 {
			t.Error("no step was tried again: the process was not killed while it trained")
		}
		testrun.SameRun(t, "with a process that was killed, and without", whole.Train.Out,
			killed.Train.Out)
	})
}

// opaqueAdamW builds the plugin. opaque is the setting that selects it.
func opaqueAdamW(t *testing.T) (exe plugin.Executable, opaque string) {
	t.Helper()
	exe = ownExecutable(t, "opaque-adamw")
	return exe, fmt.Sprintf("optimizer={plugin=%q}", exe.Path)
}

// ownExecutable builds a plugin in examples/plugins that computes in its own process.
func ownExecutable(t *testing.T, name string) plugin.Executable {
	t.Helper()
	testlevel.Long(t, "builds a plugin")
	if runtime.GOOS != "linux" {
		t.Skip("plugins that compute themselves need Linux")
	}
	built := testrun.Example(t, name)
	// A copy, so that processesOf finds only processes of this test.
	exe := plugin.Executable{Name: built.Name, Path: filepath.Join(t.TempDir(), name)}
	if err := os.WriteFile(exe.Path, read(t, built.Path), 0o700); err != nil {
		t.Fatal(err)
	}
	return exe
}

// begun reports whether the training of a run has begun.
func begun(cfg *config.Config) bool {
	info, err := os.Stat(rundir.At(cfg.Train.Out).Metrics().Name)
	return err == nil && info.Size() > 0
}

// trainUntilGone trains with a plugin whose executable is removed and whose processes are killed
// once the training has begun. It restores the executable, and returns the error of the run.
func trainUntilGone(t *testing.T, cfg *config.Config, exe plugin.Executable) error {
	t.Helper()
	gone := exe.Path + ".gone"
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ; t.Context().Err() == nil; time.Sleep(time.Millisecond) {
			if !begun(cfg) {
				continue
			}
			pids := processesOf(exe.Path)
			if err := os.Rename(exe.Path, gone); err != nil {
				t.Error(err)
			}
			for _, pid := range pids {
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
			return
		}
	}()
	_, err := train.Run(t.Context(), cfg, train.Options{Finder: testrun.Finder(t)})
	<-done
	if err := os.Rename(gone, exe.Path); err != nil {
		t.Fatal(err)
	}
	return err
}

// TestOpaqueOptimizerOnXLA checks devices with their own memory, for which tensors are copied. The
// losses equal those of the program, except that XLA rounds square roots differently.
func TestOpaqueOptimizerOnXLA(t *testing.T) {
	onXLA(t, 2)
	_, opaque := opaqueAdamW(t)
	for _, count := range []int{1, 2} {
		program := onCUDA(t, testrun.Config(t, testrun.TwoLayers, "train.clip=0.5"), count)
		testrun.Train(t, program, train.Options{})
		process := onCUDA(t, testrun.Config(t, testrun.TwoLayers, "train.clip=0.5", opaque), count)
		testrun.Train(t, process, train.Options{})
		want, got := losses(t, program.Train.Out), losses(t, process.Train.Out)
		if len(got) != len(want) {
			t.Fatalf("%d losses, want %d", len(got), len(want))
		}
		for i := range got {
			if !(relative(got[i], want[i]) < 1e-5) {
				t.Errorf("%d devices: the loss of step %d is %v, want %v", count, i+1, got[i], want[i])
			}
		}
	}
}

// TestOpaqueOptimizerFails checks that the loss of a plugin ends the run with the previous state.
func TestOpaqueOptimizerFails(t *testing.T) {
	exe, opaque := opaqueAdamW(t)
	cfg := testrun.Config(t, opaque, "train.steps=200", "train.checkpoint_every=1000")
	err := trainUntilGone(t, cfg, exe)
	if err == nil || !strings.Contains(err.Error(), "opaque-adamw") ||
		!strings.Contains(err.Error(), "step ") {
		t.Fatalf("got %v, want an error that names step and plugin", err)
	}
	testrun.Newest(t, cfg.Train.Out) // there is a checkpoint
	whole := testrun.Elsewhere(t, cfg)
	testrun.Train(t, whole, train.Options{})
	testrun.Train(t, testrun.Again(t, cfg), train.Options{Resume: true})
	testrun.SameRun(t, "with a plugin that was gone for a while, and without", whole.Train.Out,
		cfg.Train.Out)
}

// sameTraining compares the tensors of two runs and their losses.
func sameTraining(t *testing.T, what, a, b string) {
	t.Helper()
	testrun.SameTensors(t, what, testrun.Newest(t, a), testrun.Newest(t, b))
	if x, y := losses(t, a), losses(t, b); !slices.Equal(x, y) {
		t.Errorf("%s: the losses are %v and %v", what, x, y)
	}
}
