package train_test

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"strings"
	"testing"

	"github.com/hashicorp/go-hclog"

	"github.com/cage-qat/cage/host/internal/testrun"
	"github.com/cage-qat/cage/host/train"
	"github.com/cage-qat/cage/host/train/checkpoint"
	"github.com/cage-qat/cage/host/train/rundir"
	"github.com/cage-qat/cage/internal/vfs"
)

// TestStoppedWhileItBegan: a directory whose description is not whole, as versions left
// that wrote run.toml first, is that of a run without a checkpoint: --resume begins it
// again. With a checkpoint it is refused, in one sentence that names the file.
func TestStoppedWhileItBegan(t *testing.T) {
	whole := problem(t, tinyProblem)
	testrun.Train(t, testrun.Again(t, whole), train.Options{})
	config := func(dir rundir.Dir) vfs.Path { return dir.Config() }
	provenance := func(dir rundir.Dir) vfs.Path { return dir.Provenance() }
	for name, test := range map[string]struct {
		file func(rundir.Dir) vfs.Path
		text string // "none" removes the file
		want string // in the message where there is a checkpoint
	}{
		"no provenance":    {provenance, "none", "provenance.json"},
		"empty provenance": {provenance, "", "provenance.json"},
		"torn provenance":  {provenance, `{"run": "AB`, "provenance.json"},
		"empty run.toml":   {config, "", "run.toml:1: the file is empty"},
		"torn run.toml":    {config, "seed = 0\n[model]\nki", "run.toml:3"},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := testrun.Elsewhere(t, whole)
			dir := rundir.At(cfg.Train.Out)
			spoil := func() {
				t.Helper()
				path := test.file(dir)
				err := os.WriteFile(path.Name, []byte(test.text), 0o644)
				if test.text == "none" {
					err = path.Remove()
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			if err := os.CopyFS(cfg.Train.Out, os.DirFS(whole.Train.Out)); err != nil {
				t.Fatal(err)
			}
			spoil()
			_, err := train.Run(t.Context(), testrun.Again(t, cfg), train.Options{Resume: true, Finder: testrun.Finder(t)})
			if err == nil || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("with checkpoints: %v, want one line with %q", err, test.want)
			}
			if err := errors.Join(os.RemoveAll(dir.Checkpoints().Name), dir.Summary().Remove()); err != nil {
				t.Fatal(err)
			}
			if _, err := train.Run(t.Context(), testrun.Again(t, cfg), train.Options{Finder: testrun.Finder(t)}); err == nil || !strings.Contains(err.Error(), "--resume") {
				t.Errorf("without --resume: %v, want an error that names it", err)
			}
			var log bytes.Buffer
			testrun.Train(t, testrun.Again(t, cfg), train.Options{Resume: true, Logger: hclog.New(&hclog.LoggerOptions{Output: &log})})
			if !strings.Contains(log.String(), "begins again") {
				t.Errorf("nothing is said of it: %s", &log)
			}
			sameDirectory(t, name, whole.Train.Out, cfg.Train.Out)
		})
	}
}

// TestLeftovers: what a killed process left of the files of a run is removed when the
// run goes on. Nothing else is.
func TestLeftovers(t *testing.T) {
	cfg := problem(t, tinyProblem)
	runParts(t, testrun.Again(t, cfg), 3)
	dir := rundir.At(cfg.Train.Out)
	left := []vfs.Path{
		dir.Join(".run.toml123"), dir.Join(".provenance.json4"), dir.Join(".summary.json567"), dir.Join(".tokenizer.json8"),
		dir.Checkpoints().Join("." + checkpoint.FileName(4) + "99"),
	}
	mine := dir.Join(".notes1")
	for _, path := range append(left, mine) {
		if err := os.WriteFile(path.Name, []byte("half"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	testrun.Train(t, testrun.Again(t, cfg), train.Options{Resume: true})
	for _, path := range left {
		if there, err := path.Exists(); there || err != nil {
			t.Errorf("%s is still there: %v", path, err)
		}
	}
	if there, err := mine.Exists(); !there || err != nil {
		t.Errorf("%s is gone: %v", mine, err)
	}
}

// TestTornRecordBehindCheckpoint: what the power left behind the records of the checkpoint
// does not stop the run, and is reported.
func TestTornRecordBehindCheckpoint(t *testing.T) {
	whole := problem(t, tinyProblem)
	testrun.Train(t, testrun.Again(t, whole), train.Options{})
	cfg := testrun.Elsewhere(t, whole)
	runParts(t, testrun.Again(t, cfg), 4)
	for _, path := range []vfs.Path{rundir.At(cfg.Train.Out).Metrics(), rundir.At(cfg.Train.Out).Trajectory()} {
		f, err := path.OpenFile(os.O_WRONLY|os.O_APPEND, 0)
		if err != nil {
			t.Fatal(err)
		}
		_, err = f.Write([]byte("{\"step\":5,\"lo\x00\x00\x00\n\x00\x00"))
		if err := errors.Join(err, f.Close()); err != nil {
			t.Fatal(err)
		}
	}
	var log bytes.Buffer
	testrun.Train(t, testrun.Again(t, cfg), train.Options{Resume: true, Logger: hclog.New(&hclog.LoggerOptions{Output: &log})})
	if !strings.Contains(log.String(), "damaged behind the checkpoint") {
		t.Errorf("nothing is said of it: %s", &log)
	}
	sameDirectory(t, "torn records", whole.Train.Out, cfg.Train.Out)
}

// TestAllSkipped: a run none of whose steps changed anything is no success.
func TestAllSkipped(t *testing.T) {
	cfg := testrun.Config(t, append(tinyModel, "train.steps=3")...)
	runParts(t, testrun.Again(t, cfg), 1)
	// A start from which no step is finite, as the first one was not either.
	poison(t, cfg, "param/embedding", func(dims []int) (from, to int) { return 0, dims[0] * dims[1] })
	dir := rundir.At(cfg.Train.Out).Checkpoints()
	s := testrun.Newest(t, cfg.Train.Out)
	if err := s.Meta.Set("progress", map[string]any{"step": 1, "skipped": 1, "tokens": 4, "seconds": 1}); err != nil {
		t.Fatal(err)
	}
	if _, err := checkpoint.Save(t.Context(), dir, s); err != nil {
		t.Fatal(err)
	}
	_, err := train.Run(t.Context(), testrun.Again(t, cfg), train.Options{Resume: true, Finder: testrun.Finder(t)})
	if !errors.Is(err, train.ErrNotFinite) || !strings.Contains(err.Error(), "none of the 3 steps") {
		t.Errorf("%v, want an error that says that no step was done", err)
	}
}

// TestShortValidation: a validation set without a single window ends a run before it began, not after the training.
func TestShortValidation(t *testing.T) {
	cfg := testrun.Config(t, "model.context=2000", "train.batch=1")
	_, err := train.Run(t.Context(), cfg, train.Options{Finder: testrun.Finder(t)})
	if err == nil || !strings.Contains(err.Error(), "data.validation: token file ") || !strings.Contains(err.Error(), "fewer than the 2001 of one window with a context of 2000: use more text, or a smaller context") {
		t.Errorf("the error is %v", err)
	}
	if _, err := os.Stat(cfg.Train.Out); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("there is a run directory: %v", err)
	}
}
