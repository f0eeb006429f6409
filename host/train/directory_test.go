package train_test

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/go-hclog"

	"github.com/cage-qat/cage/host/deploy/trained"
	"github.com/cage-qat/cage/host/testing/testrun"
	"github.com/cage-qat/cage/host/train"
	"github.com/cage-qat/cage/host/train/checkpoint"
	"github.com/cage-qat/cage/host/train/rundir"
	"github.com/cage-qat/cage/internal/plaintoml"
	"github.com/cage-qat/cage/internal/testing/testlevel"
	"github.com/cage-qat/cage/internal/vfs"
)

// TestStoppedWhileItBegan checks run directories with an incomplete description. Without a
// checkpoint, --resume starts the run again. With a checkpoint, it is refused with a one-line error
// that names the file.
func TestStoppedWhileItBegan(t *testing.T) {
	testlevel.Long(t, "begins many runs")
	whole := problem(t, tinyProblem)
	testrun.Train(t, testrun.Again(t, whole), train.Options{})
	config := func(dir rundir.Dir) vfs.Path { return dir.Config() }
	provenance := func(dir rundir.Dir) vfs.Path { return dir.Provenance() }
	for name, test := range map[string]struct {
		file func(rundir.Dir) vfs.Path
		text string // "none" removes the file
		want string // in the message if there is a checkpoint
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
			_, err := train.Run(t.Context(), testrun.Again(t, cfg),
				train.Options{Resume: true, Finder: testrun.Finder(t)})
			if err == nil || !strings.Contains(err.Error(), test.want) ||
				strings.Contains(err.Error(), "\n") {
				t.Errorf("with checkpoints: %v, want one line with %q", err, test.want)
			}
			if err := errors.Join(os.RemoveAll(dir.Checkpoints().Name), dir.Summary().Remove()); err != nil {
				t.Fatal(err)
			}
			refused(t, "without --resume", testrun.Again(t, cfg), train.Options{}, "--resume")
			var log bytes.Buffer
			testrun.Train(t, testrun.Again(t, cfg),
				train.Options{Resume: true, Logger: hclog.New(&hclog.LoggerOptions{Output: &log})})
			if !strings.Contains(log.String(), "starts again") {
				t.Errorf("nothing is said of it: %s", &log)
			}
			sameDirectory(t, name, whole.Train.Out, cfg.Train.Out)
		})
	}
}

// TestLeftovers checks that a resumed run removes exactly the temporary files that a killed process
// has left.
func TestLeftovers(t *testing.T) {
	cfg := problem(t, tinyProblem)
	runParts(t, testrun.Again(t, cfg), 3)
	dir := rundir.At(cfg.Train.Out)
	left := []vfs.Path{
		dir.Join(".run.toml.cage-unfinished-123"), dir.Join(".provenance.json.cage-unfinished-4"),
		dir.Join(".summary.json.cage-unfinished-567"), dir.Join(".tokenizer.json.cage-unfinished-8"),
		dir.Checkpoints().Join("." + checkpoint.FileName(4) + ".cage-unfinished-99"),
	}
	mine := dir.Join(".notes1")
	for _, path := range append(left, mine) {
		write(t, path.Name, []byte("half"))
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

// TestTornRecordBehindCheckpoint checks that torn records after those of the checkpoint, from a
// loss of power, do not stop the run and are reported.
func TestTornRecordBehindCheckpoint(t *testing.T) {
	whole := problem(t, tinyProblem)
	testrun.Train(t, testrun.Again(t, whole), train.Options{})
	cfg := testrun.Elsewhere(t, whole)
	runParts(t, testrun.Again(t, cfg), 4)
	for _, path := range []vfs.Path{rundir.At(cfg.Train.Out).Metrics(), rundir.At(cfg.Train.Out).
		Trajectory()} {
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
	testrun.Train(t, testrun.Again(t, cfg),
		train.Options{Resume: true, Logger: hclog.New(&hclog.LoggerOptions{Output: &log})})
	if !strings.Contains(log.String(), "records after the checkpoint were damaged") {
		t.Errorf("nothing is said of it: %s", &log)
	}
	sameDirectory(t, "torn records", whole.Train.Out, cfg.Train.Out)
}

// TestAllSkipped checks that a run ends with an error if all its steps were skipped.
func TestAllSkipped(t *testing.T) {
	cfg := testrun.Config(t, slices.Concat(tinyModel, doubling, []string{"train.steps=3"})...)
	runParts(t, testrun.Again(t, cfg), 1)
	// A checkpoint from which no step is finite, and whose first step was skipped.
	poison(t, cfg, "param/embedding", huge, func(dims []int) (from, to int) {
		return 0, dims[0] * dims[1]
	})
	dir := rundir.At(cfg.Train.Out).Checkpoints()
	s := testrun.Newest(t, cfg.Train.Out)
	if err := s.Meta.Set("progress",
		map[string]any{"step": 1, "skipped": 1, "tokens": 4, "seconds": 1}); err != nil {
		t.Fatal(err)
	}
	if _, err := checkpoint.Save(t.Context(), dir, s); err != nil {
		t.Fatal(err)
	}
	_, err := train.Run(t.Context(), testrun.Again(t, cfg),
		train.Options{Resume: true, Finder: testrun.Finder(t)})
	if !errors.Is(err, train.ErrNotFinite) || !strings.Contains(err.Error(), "none of the 3 steps") {
		t.Errorf("%v, want an error that says that no step was done", err)
	}
}

// TestShortValidation checks that a validation set without a single window ends a run before the
// training.
func TestShortValidation(t *testing.T) {
	cfg := testrun.Config(t, "model.context=2000", "train.batch=1")
	refused(t, "a short validation set", cfg, train.Options{}, "data.validation: token file ",
		"want at least 2001 for one window with a context of 2000")
	if _, err := os.Stat(cfg.Train.Out); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("there is a run directory: %v", err)
	}
}

// content returns the contents of the files in a directory, by path.
func content(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		out[path] = string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// TestRemovedDirectory checks that a run whose directory is removed or replaced by another run ends
// with an error and writes nothing more there.
func TestRemovedDirectory(t *testing.T) {
	testlevel.Long(t, "trains several runs")
	other := testrun.Config(t, "seed=3")
	runParts(t, other, 2)
	cases := map[string]struct {
		when string
		do   func(dir string) error
	}{
		"removed":                            {"step 6/20", os.RemoveAll},
		"removed before the last evaluation": {"step 20/20", os.RemoveAll},
		"replaced by another run": {"step 6/20",
			func(dir string) error { return replaceRun(dir, other.Train.Out) }},
		"replaced before the last evaluation": {"step 20/20",
			func(dir string) error { return replaceRun(dir, other.Train.Out) }},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			cfg := testrun.Config(t, "train.checkpoint_every=4")
			dir := cfg.Train.Out
			var before map[string]string
			console := &callAt{at: map[string]func(){c.when: func() {
				if err := c.do(dir); err != nil {
					t.Error(err)
				}
				if _, err := os.Stat(dir); err == nil {
					before = content(t, dir)
				}
			}}}
			summary, err := train.Run(t.Context(), cfg,
				train.Options{Finder: testrun.Finder(t), Console: console})
			if summary != nil || !errors.Is(err, train.ErrReplaced) || !strings.Contains(err.Error(), dir) {
				t.Errorf("got the summary %+v and the error %v", summary, err)
			}
			if before == nil {
				if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
					t.Errorf("the directory is there again: %v", err)
				}
			} else if diff := cmp.Diff(before, content(t, dir)); diff != "" {
				t.Errorf("the other run was changed:\n%s", diff)
			}
		})
	}
}

// replaceRun replaces a run by a copy of another.
func replaceRun(dir, other string) error {
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	return os.CopyFS(dir, os.DirFS(other))
}

// TestForeignCheckpoint checks that a run is neither resumed from nor evaluated with a checkpoint
// of another run.
func TestForeignCheckpoint(t *testing.T) {
	cfg := testrun.Config(t)
	other := testrun.Elsewhere(t, cfg, "seed=3")
	runParts(t, cfg, 2)
	runParts(t, other, 4)
	name := checkpoint.FileName(4)
	foreign, err := rundir.At(other.Train.Out).Checkpoints().Join(name).ReadFile()
	if err != nil {
		t.Fatal(err)
	}
	write(t, rundir.At(cfg.Train.Out).Checkpoints().Join(name).Name, foreign)
	before := content(t, cfg.Train.Out)
	refused(t, "resume", testrun.Again(t, cfg), train.Options{Resume: true},
		name+" belongs to another run")
	if diff := cmp.Diff(before, content(t, cfg.Train.Out)); diff != "" {
		t.Errorf("the run was changed:\n%s", diff)
	}
	if _, err := trained.Open(t.Context(), cfg.Train.Out,
		trained.Options{Finder: testrun.Finder(t)}); err == nil ||
		!strings.Contains(err.Error(), name+" belongs to another run") {
		t.Errorf("open: %v", err)
	}
}

// TestCheckpointsWithoutRun checks that a new run does not start among the checkpoints of another
// run, which would displace its own.
func TestCheckpointsWithoutRun(t *testing.T) {
	cfg := testrun.Config(t, "train.keep=1")
	runParts(t, cfg, 4)
	for _, name := range []string{rundir.ConfigFile, rundir.ProvenanceFile, rundir.MetricsFile,
		rundir.SummaryFile} {
		if err := os.Remove(filepath.Join(cfg.Train.Out, name)); err != nil {
			t.Fatal(err)
		}
	}
	for _, resume := range []bool{false, true} {
		_, err := train.Run(t.Context(), testrun.Again(t, cfg, "seed=3"),
			train.Options{Resume: resume, StopAfter: 2, Finder: testrun.Finder(t)})
		var ce *plaintoml.Error
		if !errors.As(err, &ce) || ce.Key != "train.out" ||
			!strings.Contains(err.Error(), "has checkpoints of steps [4], but no run.toml") {
			t.Errorf("resume %v: %v", resume, err)
		}
	}
	if got := savedSteps(t, cfg); len(got) != 1 || got[0] != 4 {
		t.Errorf("the checkpoints are of steps %v", got)
	}
}

// TestRecordsWithoutRun checks that a run does not start in a directory with the records or the
// summary of another run.
func TestRecordsWithoutRun(t *testing.T) {
	testlevel.Long(t, "trains several runs")
	for _, name := range []string{rundir.MetricsFile, rundir.TrajectoryFile, rundir.SamplesFile,
		rundir.SummaryFile} {
		cfg := testrun.Config(t)
		path := filepath.Join(cfg.Train.Out, name)
		if err := errors.Join(os.MkdirAll(cfg.Train.Out, 0o755),
			os.WriteFile(path, []byte("{}\n"), 0o644)); err != nil {
			t.Fatal(err)
		}
		for _, resume := range []bool{false, true} {
			_, err := train.Run(t.Context(), cfg,
				train.Options{Resume: resume, StopAfter: 2, Finder: testrun.Finder(t)})
			var ce *plaintoml.Error
			if !errors.As(err, &ce) || ce.Key != "train.out" ||
				!strings.Contains(err.Error(), "has the "+name+" of another run, but no run.toml") {
				t.Errorf("%s, resume %v: %v", name, resume, err)
			}
		}
		if text, err := os.ReadFile(path); err != nil || string(text) != "{}\n" {
			t.Errorf("%s holds %q, %v", name, text, err)
		}
	}
}
