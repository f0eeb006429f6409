package train_test

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/cage-qat/cage/host/testing/testrun"
	"github.com/cage-qat/cage/host/train"
	"github.com/cage-qat/cage/host/train/checkpoint"
	"github.com/cage-qat/cage/host/train/config"
	"github.com/cage-qat/cage/host/train/rundir"
	"github.com/cage-qat/cage/host/train/step"
	"github.com/cage-qat/cage/internal/testing/testlevel"
	"github.com/cage-qat/cage/internal/vfs"
)

// TestErrorsSaveWhatThereIs checks that after an error that leaves the state consistent, there is a
// checkpoint of the last finished step, although none was due. When the cause is removed, the
// resumed run ends like an undisturbed one.
func TestErrorsSaveWhatThereIs(t *testing.T) {
	testlevel.Long(t, "trains several runs")
	cases := map[string]struct {
		when  string
		spoil func(t *testing.T, cfg *config.Config) (mend func())
		steps int // step of the checkpoint; one more if the next batches were already read
	}{
		"training data cut": {"step 6/20",
			func(t *testing.T, cfg *config.Config) func() { return cut(t, cfg.Data.Train[0]) }, 6},
		"validation data cut": {"step 6/20",
			func(t *testing.T, cfg *config.Config) func() { return cut(t, cfg.Data.Validation) }, 8},
		"final evaluation": {"step 17/20",
			func(t *testing.T, cfg *config.Config) func() { return cut(t, cfg.Data.Validation) }, 20},
		"metrics on a full disk": {"step 6/20", func(t *testing.T, cfg *config.Config) func() {
			fillDisk(t, rundir.At(cfg.Train.Out).Metrics().Name)
			return func() {}
		}, 20},
		"metrics of an evaluation on a full disk": {"step 9/20",
			func(t *testing.T, cfg *config.Config) func() {
				fillDisk(t, rundir.At(cfg.Train.Out).Metrics().Name)
				return func() {}
			}, 20},
		"summary": {"step 20/20", func(t *testing.T, cfg *config.Config) func() {
			path := rundir.At(cfg.Train.Out).Summary().Name
			if err := os.Mkdir(path, 0o755); err != nil {
				t.Error(err)
			}
			return func() { os.Remove(path) }
		}, 20},
	}
	// The checkpoint of step 5 waits for the verification of the data.
	whole := testrun.Config(t, "train.checkpoint_every=5")
	testrun.Train(t, whole, train.Options{})
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			cfg := testrun.Config(t, "train.checkpoint_every=5")
			var mend func()
			console := &callAt{at: map[string]func(){c.when: func() { mend = c.spoil(t, cfg) }}}
			_, err := train.Run(t.Context(), testrun.Again(t, cfg),
				train.Options{Finder: testrun.Finder(t), Console: console})
			if err == nil || errors.Is(err, train.ErrInterrupted) {
				t.Fatalf("the run ended with the error %v", err)
			}
			t.Log(err)
			if n := newest(t, cfg); n != c.steps && (name != "training data cut" || n != c.steps+1) {
				t.Errorf("the newest checkpoint is of step %d, want %d", n, c.steps)
			}
			mend()
			testrun.Train(t, testrun.Again(t, cfg), train.Options{Resume: true})
			testrun.SameRun(t, "undisturbed, and after the error", whole.Train.Out, cfg.Train.Out)
		})
	}
}

// cut truncates a file until mend is called.
func cut(t *testing.T, path string) (mend func()) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err == nil {
		err = os.Truncate(path, 100)
	}
	if err != nil {
		t.Error(err)
	}
	return func() {
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Error(err)
		}
	}
}

// fillDisk makes every further write to a file that this process has open fail, as on a full disk,
// until mend is called.
func fillDisk(t *testing.T, path string) (mend func()) {
	t.Helper()
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skip("needs /dev/full: ", err)
	}
	defer full.Close()
	links, err := filepath.Glob("/proc/self/fd/*")
	if err != nil {
		t.Error(err)
	}
	for _, link := range links {
		if to, err := os.Readlink(link); err != nil || to != path {
			continue
		}
		var fd int
		if _, err := fmt.Sscan(filepath.Base(link), &fd); err != nil {
			t.Error(err)
		}
		file, err := syscall.Dup(fd)
		if err == nil {
			err = syscall.Dup3(int(full.Fd()), fd, syscall.O_CLOEXEC)
		}
		if err != nil {
			t.Error(err)
		}
		return func() {
			if err := errors.Join(syscall.Dup3(file, fd, syscall.O_CLOEXEC),
				syscall.Close(file)); err != nil {
				t.Error(err)
			}
		}
	}
	t.Errorf("%s is not open", path)
	return func() {}
}

// TestRecordsWait checks that a run continues if metrics.jsonl cannot be written. The records are
// written later, by this run or by the one that is resumed from its checkpoint.
func TestRecordsWait(t *testing.T) {
	testlevel.Long(t, "waits for a full disk")
	whole := testrun.Config(t, "train.checkpoint_every=5")
	testrun.Train(t, whole, train.Options{})
	for name, stop := range map[string]int{"by the run": 0, "by the one that goes on": 12} {
		t.Run(name, func(t *testing.T) {
			cfg := testrun.Elsewhere(t, whole)
			var mend func()
			console := &callAt{at: map[string]func(){
				"step 7/20":  func() { mend = fillDisk(t, rundir.At(cfg.Train.Out).Metrics().Name) },
				"step 14/20": func() { mend() },
			}}
			var log bytes.Buffer
			_, err := train.Run(t.Context(), testrun.Again(t, cfg),
				train.Options{Finder: testrun.Finder(t), StopAfter: stop,
					Console: console, Logger: hclog.New(&hclog.LoggerOptions{Output: &log})})
			if told := strings.Count(log.String(),
				"records could not be written: training continues"); told < 2 || told > 4 ||
				!strings.Contains(log.String(), "no space left on device") {
				t.Errorf("the log says:\n%s", log.String())
			}
			if stop == 0 && err != nil || stop > 0 && (err == nil || errors.Is(err, train.ErrInterrupted)) {
				t.Errorf("the run ended with the error %v", err)
			}
			if stop > 0 {
				if n := newest(t, cfg); n != stop {
					t.Errorf("the newest checkpoint is of step %d", n)
				}
				runParts(t, cfg, 15)
				runParts(t, cfg, 16)
				testrun.Train(t, testrun.Again(t, cfg), train.Options{Resume: true})
			}
			testrun.SameRun(t, "undisturbed, and with a full disk", whole.Train.Out, cfg.Train.Out)
		})
	}
}

// TestSaveIsTriedAgain checks that a failed checkpoint is reported and tried again, after more and
// more steps and whenever one is due, while the run continues.
func TestSaveIsTriedAgain(t *testing.T) {
	for name, mended := range map[string]bool{"mended": true, "never": false} {
		t.Run(name, func(t *testing.T) {
			cfg := testrun.Config(t, "train.checkpoint_every=3", "train.keep=10")
			inTheWay := rundir.At(cfg.Train.Out).Checkpoints().Name
			at := map[string]func(){"step 1/20": func() { put(t, inTheWay) }}
			if mended {
				at["step 9/20"] = func() {
					if err := os.Remove(inTheWay); err != nil {
						t.Error(err)
					}
				}
			}
			var log bytes.Buffer
			_, err := train.Run(t.Context(), cfg,
				train.Options{Finder: testrun.Finder(t), Console: &callAt{at: at},
					Logger: hclog.New(&hclog.LoggerOptions{Output: &log})})
			var tries []string
			for _, m := range regexp.MustCompile(`could not be saved.* step=(\d+) .*checkpoints`).
				FindAllStringSubmatch(log.String(), -1) {
				tries = append(tries, m[1])
			}
			if mended {
				if err != nil {
					t.Fatal(err)
				}
				if want := []string{"3", "4", "6"}; !slices.Equal(tries, want) {
					t.Errorf("tried in vain after steps %v, want %v:\n%s", tries, want, log.String())
				}
				if got := savedSteps(t, cfg); !slices.Equal(got, []int{9, 12, 15, 18, 20}) {
					t.Errorf("the checkpoints are of steps %v", got)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), "save the checkpoint of step 20") ||
				!strings.Contains(err.Error(), "the newest one is none") {
				t.Errorf("the run ended with the error %v", err)
			}
			if want := []string{"3", "4", "6", "9", "12", "15", "18"}; !slices.Equal(tries, want) {
				t.Errorf("tried in vain after steps %v, want %v", tries, want)
			}
			if n := len(testrun.Records(t, cfg.Train.Out)); n != 22 {
				t.Errorf("%d records, want those of 20 steps and 2 evaluations", n)
			}
		})
	}
}

// TestInterruptedAndNotSaved checks that if an interrupted run cannot be saved, the error says so
// and is not ErrInterrupted.
func TestInterruptedAndNotSaved(t *testing.T) {
	for name, want := range map[string]string{"checkpoints": "save the checkpoint of step 3",
		"summary.json": "The state after step 3 is saved"} {
		cfg := testrun.Config(t)
		inTheWay := filepath.Join(cfg.Train.Out, name)
		if name == "summary.json" {
			inTheWay = filepath.Join(inTheWay, "directory")
		}
		console := &callAt{at: map[string]func(){"step 1/20": func() { put(t, inTheWay) }}}
		_, err := train.Run(t.Context(), cfg, train.Options{Finder: testrun.Finder(t), StopAfter: 3,
			Console: console})
		if err == nil || errors.Is(err, train.ErrInterrupted) || !strings.Contains(err.Error(), want) {
			t.Errorf("with something in the place of %s: %v", name, err)
		}
	}
}

// put writes an empty file, and creates its directories.
func put(t *testing.T, path string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Error(err)
	}
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Error(err)
	}
}

func savedSteps(t *testing.T, cfg *config.Config) []int {
	t.Helper()
	entries, err := checkpoint.List(rundir.At(cfg.Train.Out).Checkpoints())
	if err != nil {
		t.Fatal(err)
	}
	var list []int
	for _, e := range entries {
		list = append(list, e.Step)
	}
	return list
}

// TestCheckpointMinutes checks that checkpoints can depend on time; here they are due after every
// step.
func TestCheckpointMinutes(t *testing.T) {
	if c := testrun.Config(t); c.Train.CheckpointMinutes != 10 {
		t.Errorf("the default is %v minutes", c.Train.CheckpointMinutes)
	}
	if c := testrun.Config(t, "train.checkpoint_every=4"); c.Train.CheckpointMinutes != 0 {
		t.Errorf("with checkpoint_every the default is %v minutes", c.Train.CheckpointMinutes)
	}
	cfg := testrun.Config(t, "train.checkpoint_minutes=1e-9", "train.keep=3")
	testrun.Train(t, cfg, train.Options{})
	if got := savedSteps(t, cfg); !slices.Equal(got, []int{18, 19, 20}) {
		t.Errorf("the checkpoints are of steps %v", got)
	}
}

// TestHalfAStepIsNotSaved checks that no state is saved if a step fails after it has begun to
// replace parameters and states.
func TestHalfAStepIsNotSaved(t *testing.T) {
	cfg := testrun.Config(t, "train.checkpoint_every=5")
	var state *step.State
	console := &callAt{at: map[string]func(){"step 7/20": func() {
		// A tensor that the update needs is gone.
		state.Tensors["state/head/m"].Finalize()
	}}}
	_, err := train.RunSeen(t.Context(), cfg,
		train.Options{Finder: testrun.Finder(t), Console: console}, func(s *step.State) { state = s })
	if err == nil || !strings.Contains(err.Error(), "step 8: ") ||
		!strings.Contains(err.Error(), "The step failed while replacing the state, so it could not be "+
			"saved; the newest checkpoint is of step 5") {
		t.Errorf("the run ended with the error %v", err)
	}
	if state.Consistent() {
		t.Error("the state passes for consistent")
	}
	if n := newest(t, cfg); n != 5 {
		t.Errorf("the newest checkpoint is of step %d, want 5", n)
	}
}

// slowFS writes checkpoints slowly, and counts how many are written at once.
type slowFS struct {
	vfs.FS
	pause          time.Duration // per write
	now, most, all atomic.Int32
	writes         atomic.Int32
}

func (s *slowFS) OpenFile(name string, flag int, perm fs.FileMode) (vfs.File, error) {
	f, err := s.FS.OpenFile(name, flag, perm)
	if err != nil || flag&os.O_CREATE == 0 || !strings.Contains(name, ".step-") {
		return f, err
	}
	s.all.Add(1)
	s.most.Store(max(s.most.Load(), s.now.Add(1)))
	return &slowFile{f, s}, nil
}

type slowFile struct {
	vfs.File
	fs *slowFS
}

func (f *slowFile) WriteAt(p []byte, offset int64) (int, error) {
	f.fs.writes.Add(1)
	time.Sleep(f.fs.pause)
	return f.File.WriteAt(p, offset)
}

func (f *slowFile) Close() error {
	f.fs.now.Add(-1)
	return f.File.Close()
}

// TestSavedInTheBackground checks that a checkpoint that is written slowly contains the state after
// its step and nothing of later steps, and that these are computed as if nothing was saved. One
// checkpoint is written at a time.
func TestSavedInTheBackground(t *testing.T) {
	testlevel.Long(t, "saves after every step of many runs")
	cases := map[string][]string{"plain": nil}
	for name, overrides := range lateRefreshes {
		cases[name] = overrides
	}
	for name, overrides := range cases {
		t.Run(name, func(t *testing.T) {
			cfg := testrun.Config(t, append(overrides, "train.checkpoint_every=1", "train.keep=20")...)
			slow := testrun.Elsewhere(t, cfg)
			testrun.Train(t, cfg, train.Options{})
			files := &slowFS{FS: vfs.OS, pause: 20 * time.Millisecond}
			testrun.Train(t, testrun.Again(t, slow), train.Options{Files: files})
			for _, step := range savedSteps(t, cfg) {
				a, b := testrun.Checkpoint(t, cfg.Train.Out, step), testrun.Checkpoint(t, slow.Train.Out, step)
				testrun.SameTensors(t, "saved fast and slowly", a, b)
			}
			testrun.SameRun(t, "saved fast and slowly", cfg.Train.Out, slow.Train.Out)
			if files.most.Load() != 1 || files.all.Load() != 20 || files.now.Load() != 0 {
				t.Errorf("%d checkpoints were written, %d at once, %d are not done", files.all.Load(),
					files.most.Load(), files.now.Load())
			}
		})
	}
	// The checkpoint interval does not change a checkpoint.
	seldom, often := testrun.Config(t, "train.checkpoint_every=10"),
		testrun.Config(t, "train.checkpoint_every=1", "train.keep=20")
	testrun.Train(t, seldom, train.Options{})
	testrun.Train(t, often, train.Options{})
	testrun.SameTensors(t, "saved seldom and often", testrun.Checkpoint(t, seldom.Train.Out, 10),
		testrun.Checkpoint(t, often.Train.Out, 10))
}

// TestSecondsOfSteps checks that the time of steps does not include the time that they wait for a
// checkpoint to be written.
func TestSecondsOfSteps(t *testing.T) {
	testlevel.Long(t, "has slow parts")
	cfg := testrun.Config(t, "train.checkpoint_every=1", "train.steps=4", "train.eval_every=0")
	files := &slowFS{FS: vfs.OS, pause: 200 * time.Millisecond}
	summary := testrun.Train(t, cfg, train.Options{Files: files})
	// No step waits for the last checkpoint, so steps wait for at least three quarters of the writes.
	waited := 0.75 * float64(files.writes.Load()) * files.pause.Seconds()
	if seconds := float64(summary.Seconds); seconds > waited/2 {
		t.Errorf("the steps took %.3f s, of which they waited %.3f s", seconds, waited)
	}
}
