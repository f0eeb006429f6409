package train_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/go-hclog"

	"github.com/cage-qat/cage/host/testing/testrun"
	"github.com/cage-qat/cage/host/train"
	"github.com/cage-qat/cage/host/train/config"
	"github.com/cage-qat/cage/host/train/metrics"
	"github.com/cage-qat/cage/host/train/plugin"
	"github.com/cage-qat/cage/host/train/rundir"
	"github.com/cage-qat/cage/internal/testing/crashfs"
	"github.com/cage-qat/cage/internal/testing/faultfs"
	"github.com/cage-qat/cage/internal/testing/testlevel"
	"github.com/cage-qat/cage/internal/vfs"
)

// victim is a training whose files fail.
type victim struct {
	name   string
	cfg    *config.Config // its directory is that of the undisturbed run
	before int            // number of steps that were done before, without faults
	part   int            // every part-th operation or moment is tried, except in exhaustive tests
}

const tinyProblem = `
[model]
kind = "quadratic"
dimension = 4
[train]
steps = 6
eval_every = 4
log_every = 1
trajectory_every = 2
checkpoint_every = 2
keep = 2
[schedule]
rate = 3e-2
[method]
silence = 0.4
[quantizer.weights]
plugin = "quest"
[optimizer]
plugin = "adamw"
`

var tinyModel = []string{
	"model.layers=1", "model.width=16", "model.heads=1", "model.hidden=16", "model.context=4",
	"train.batch=1", "train.steps=4",
	"train.checkpoint_every=2", "train.keep=1", "train.eval_every=2", "train.eval_batches=1",
	"train.final_eval_batches=1",
}

// victims returns the trainings of the fault and power-loss tests.
func victims(t *testing.T) []victim {
	t.Helper()
	toy := problem(t, tinyProblem)
	model := testrun.Config(t, tinyModel...)
	list := []victim{
		{"problem", toy, 0, 13}, {"problem resumed", testrun.Again(t, toy), 3, 17},
		{"model", model, 0, 29}, {"model resumed", testrun.Again(t, model), 3, 29},
	}
	for _, v := range []victim{list[0], list[2]} {
		testrun.Train(t, testrun.Again(t, v.cfg), train.Options{})
	}
	return list
}

// start returns the configuration of a training that is about to start or to continue.
func (v victim) start(t *testing.T, prepared string) *config.Config {
	t.Helper()
	cfg := testrun.Elsewhere(t, v.cfg)
	if v.before > 0 {
		if err := os.CopyFS(cfg.Train.Out, os.DirFS(prepared)); err != nil {
			t.Fatal(err)
		}
	}
	return cfg
}

// prepare makes the directory that the training continues from.
func (v victim) prepare(t *testing.T, finder *plugin.Finder) string {
	t.Helper()
	if v.before == 0 {
		return ""
	}
	cfg := testrun.Elsewhere(t, v.cfg)
	if _, err := train.Run(t.Context(), cfg,
		train.Options{StopAfter: v.before, Finder: finder}); !errors.Is(err, train.ErrInterrupted) {
		t.Fatal(err)
	}
	return cfg.Train.Out
}

// TestFaults checks that the failure of any operation on the files of a run, alone or with all
// later ones, is reported, and that the resumed run ends like an undisturbed one.
func TestFaults(t *testing.T) {
	testlevel.Long(t, "makes each operation on files fail in turn")
	finder := testrun.Finder(t)
	for _, v := range victims(t) {
		t.Run(v.name, func(t *testing.T) {
			prepared := v.prepare(t, finder)
			every := testlevel.Choose(v.part, 1)
			for first, forever := range []bool{false, true} {
				i, failed := first, 0
				for v.fail(t, finder, prepared, i, forever) {
					i += every
					failed++
				}
				t.Logf("forever %v: %d operations failed in turn", forever, failed)
				if i < 40 {
					t.Errorf("only the first %d operations were tried", i)
				}
			}
		})
	}
}

// TestPowerLoss checks that after a loss of power at any moment, the resumed run ends like an
// undisturbed one, also if nothing of it is left.
func TestPowerLoss(t *testing.T) {
	testlevel.Long(t, "loses power at many moments")
	finder := testrun.Finder(t)
	for _, v := range victims(t) {
		t.Run(v.name, func(t *testing.T) {
			prepared := v.prepare(t, finder)
			cfg := v.start(t, prepared)
			root := filepath.Dir(cfg.Train.Out)
			files, err := crashfs.New(root)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := train.Run(t.Context(), testrun.Again(t, cfg),
				train.Options{Files: files, Resume: v.before > 0, Finder: finder}); err != nil {
				t.Fatal(err)
			}
			states := 0
			for m := 0; m <= files.Moments(); m += testlevel.Choose(v.part, 1) {
				// Only what was synced (0), everything (1), and some of the mixtures.
				for _, seed := range append([]uint64{0, 1}, mixtures[:testlevel.Choose(1, len(mixtures))]...) {
					states++
					v.lose(t, finder, files, m, seed)
				}
			}
			t.Logf("%d moments, %d states", files.Moments(), states)
			// All files of a finished run are there without resuming it.
			lost := v.lost(t, files, files.Moments(), 0)
			sameDirectory(t, "power lost after the end", v.cfg.Train.Out, lost)
		})
	}
}

// lost returns the run directory after a loss of power.
func (v victim) lost(t *testing.T, files *crashfs.FS, moment int, seed uint64) string {
	t.Helper()
	root := t.TempDir()
	if err := files.Lose(moment, seed, root); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(root, filepath.Base(v.cfg.Train.Out))
}

// mixtures are seeds of losses that keep a part of what was not synced.
var mixtures = []uint64{2, 3, 4, 5}

// lose simulates a loss of power at a moment, and resumes with the files that are left.
func (v victim) lose(
	t *testing.T, finder *plugin.Finder, files *crashfs.FS, moment int, seed uint64,
) {
	t.Helper()
	what := fmt.Sprintf("power lost at moment %d, seed %d", moment, seed)
	dir := rundir.At(v.lost(t, files, moment, seed))
	if text, err := dir.Provenance().ReadFile(); !json.Valid(text) {
		if there, _ := dir.Config().Exists(); there {
			t.Errorf("%s: there is a run.toml, but its provenance.json holds %q (%v)", what, text, err)
		}
	}
	cfg := testrun.Again(t, v.cfg, fmt.Sprintf("train.out=%q", dir.Name))
	if _, err := train.Run(t.Context(), testrun.Again(t, cfg),
		train.Options{Resume: true, Finder: finder}); err != nil {
		t.Errorf("%s: cannot be resumed: %v", what, err)
		return
	}
	sameDirectory(t, what, v.cfg.Train.Out, cfg.Train.Out)
}

// fail trains with a fault in the i-th operation, and then resumes without faults. It returns false
// if there was no such operation.
func (v victim) fail(
	t *testing.T, finder *plugin.Finder, prepared string, i int, forever bool,
) bool {
	t.Helper()
	cfg := v.start(t, prepared)
	files := faultfs.New(vfs.OS, i, forever)
	var log bytes.Buffer
	_, err := train.Run(t.Context(), testrun.Again(t, cfg), train.Options{
		Files: files, Resume: v.before > 0, Finder: finder,
		Logger: hclog.New(&hclog.LoggerOptions{Output: &log, Level: hclog.Warn}),
	})
	fired := files.Fired()
	if len(fired) == 0 {
		if err != nil {
			t.Fatalf("nothing failed, and yet: %v", err)
		}
		return false
	}
	what := fmt.Sprintf("%s failed", fired[0])
	if forever {
		what += " with all after it"
	}
	if said := fmt.Sprint(err, log.String()); !strings.Contains(said, "injected fault") &&
		!harmless(fired[0]) {
		t.Errorf("%s: nobody reports it: %s", what, said)
	}
	if _, err := train.Run(t.Context(), testrun.Again(t, cfg),
		train.Options{Resume: true, Finder: finder}); err != nil {
		t.Errorf("%s: cannot be resumed: %v", what, err)
		return true
	}
	sameDirectory(t, what, v.cfg.Train.Out, cfg.Train.Out)
	return true
}

// harmless reports whether the fault of an operation may go unreported: if Stat fails for a
// checkpoint, the checkpoint is read again before it counts.
func harmless(op faultfs.Op) bool {
	return op.Kind == faultfs.Stat && strings.HasSuffix(op.Path, ".safetensors")
}

// sameDirectory reports differences between two finished run directories, apart from times. It
// compares file names, so that it finds leftovers.
func sameDirectory(t *testing.T, what, a, b string) {
	t.Helper()
	// A failed checkpoint is saved some steps later. The newest ones are compared below.
	older := func(name string) string { return stepNumber.ReplaceAllString(name, "step-#.") }
	if diff := cmp.Diff(fileNames(t, a, older), fileNames(t, b, older)); diff != "" {
		t.Errorf("%s: the files differ:\n%s", what, diff)
		return
	}
	testrun.SameRun(t, what, a, b)
	for _, name := range []string{rundir.TrajectoryFile, rundir.SummaryFile} {
		if diff := cmp.Diff(timeless(t, filepath.Join(a, name)),
			timeless(t, filepath.Join(b, name))); diff != "" {
			t.Errorf("%s: %s differs:\n%s", what, name, diff)
		}
	}
}

var stepNumber = regexp.MustCompile(`step-[0-9]+\.`)

// fileNames returns the names of all files below a directory, changed by edit.
func fileNames(t *testing.T, dir string, edit func(string) string) (names []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && path != dir {
			names = append(names, edit(strings.TrimPrefix(path, dir)))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// timeless returns the lines of a file of JSON values without times, directories and names, or
// nothing if the file does not exist.
func timeless(t *testing.T, path string) []map[string]any {
	t.Helper()
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	var list []map[string]any
	for values := json.NewDecoder(bytes.NewReader(text)); values.More(); {
		var v map[string]any
		if err := values.Decode(&v); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		maps.DeleteFunc(v, func(name string, _ any) bool {
			return name == "dir" || name == "name" || metrics.Timed(name)
		})
		list = append(list, v)
	}
	return list
}
