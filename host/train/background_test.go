package train_test

import (
	"io/fs"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cage-qat/cage/host/internal/testrun"
	"github.com/cage-qat/cage/host/train"
	"github.com/cage-qat/cage/internal/effort"
	"github.com/cage-qat/cage/internal/vfs"
)

// slowFS takes its time to write checkpoints and counts how many are written at once.
type slowFS struct {
	vfs.FS
	pause          time.Duration // of a write
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

// TestSavedInTheBackground: however long a checkpoint takes to be written, it holds the
// state after its step and nothing of the steps that go on meanwhile, which are done as if
// nothing was saved. One is written at a time.
func TestSavedInTheBackground(t *testing.T) {
	effort.Long(t, "saves after every step of many runs")
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
				t.Errorf("%d checkpoints were written, %d at once, %d are not done", files.all.Load(), files.most.Load(), files.now.Load())
			}
		})
	}
	// What was saved every step is what a run saves that saves seldom.
	seldom, often := testrun.Config(t, "train.checkpoint_every=10"), testrun.Config(t, "train.checkpoint_every=1", "train.keep=20")
	testrun.Train(t, seldom, train.Options{})
	testrun.Train(t, often, train.Options{})
	testrun.SameTensors(t, "saved seldom and often", testrun.Checkpoint(t, seldom.Train.Out, 10), testrun.Checkpoint(t, often.Train.Out, 10))
}

// TestSecondsOfSteps: the time of steps leaves out how long they wait for a checkpoint that is being written.
func TestSecondsOfSteps(t *testing.T) {
	effort.Long(t, "has slow parts")
	cfg := testrun.Config(t, "train.checkpoint_every=1", "train.steps=4", "train.eval_every=0")
	files := &slowFS{FS: vfs.OS, pause: 200 * time.Millisecond}
	summary := testrun.Train(t, cfg, train.Options{Files: files})
	// Nobody waits in a step for the last checkpoint, so that at least three quarters of the writes are waited for.
	waited := 0.75 * float64(files.writes.Load()) * files.pause.Seconds()
	if seconds := float64(summary.Seconds); seconds > waited/2 {
		t.Errorf("the steps took %.3f s, of which they waited %.3f s", seconds, waited)
	}
}
