package train_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/go-hclog"

	"github.com/cage-qat/cage/host/config"
	"github.com/cage-qat/cage/host/internal/testrun"
	"github.com/cage-qat/cage/host/plugin"
	"github.com/cage-qat/cage/host/rundir"
	"github.com/cage-qat/cage/host/train"
	"github.com/cage-qat/cage/internal/vfs"
	"github.com/cage-qat/cage/internal/vfs/faultfs"
)

// victim is a training whose files fail.
type victim struct {
	name   string
	cfg    *config.Config // its directory is that of the undisturbed run
	before int            // steps that were done before, on healthy files
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
	"model.layers=1", "model.width=16", "model.heads=1", "model.hidden=16", "model.context=4", "train.batch=1", "train.steps=4",
	"train.checkpoint_every=2", "train.keep=1", "train.eval_every=2", "train.eval_batches=1", "train.final_eval_batches=1",
}

// victims are the trainings of the fault and power-loss tests.
func victims(t *testing.T) []victim {
	t.Helper()
	toy := problem(t, tinyProblem)
	model := testrun.Config(t, tinyModel...)
	list := []victim{
		{"problem", toy, 0}, {"problem resumed", testrun.Again(t, toy), 3},
		{"model", model, 0}, {"model resumed", testrun.Again(t, model), 3},
	}
	for _, v := range []victim{list[0], list[2]} {
		testrun.Train(t, testrun.Again(t, v.cfg), train.Options{})
	}
	return list
}

// start is a directory in which the training is about to begin or to go on.
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

// prepare makes the directory that the training goes on from.
func (v victim) prepare(t *testing.T, finder *plugin.Finder) string {
	t.Helper()
	if v.before == 0 {
		return ""
	}
	cfg := testrun.Elsewhere(t, v.cfg)
	if _, err := train.Run(t.Context(), cfg, train.Options{StopAfter: v.before, Finder: finder}); !errors.Is(err, train.ErrInterrupted) {
		t.Fatal(err)
	}
	return cfg.Train.Out
}

func TestFaults(t *testing.T) {
	finder := testrun.Finder(t)
	for _, v := range victims(t) {
		t.Run(v.name, func(t *testing.T) {
			prepared := v.prepare(t, finder)
			for _, forever := range []bool{false, true} {
				for i := 0; ; i++ {
					if !v.fail(t, finder, prepared, i, forever) {
						t.Logf("%d operations, forever %v", i, forever)
						break
					}
				}
			}
		})
	}
}

// fail trains with a fault in the i-th operation and then goes on with healthy files. It
// is false when there was no such operation.
func (v victim) fail(t *testing.T, finder *plugin.Finder, prepared string, i int, forever bool) bool {
	t.Helper()
	cfg := v.start(t, prepared)
	files := faultfs.New(vfs.OS, i, forever)
	var log bytes.Buffer
	_, err := train.Run(t.Context(), testrun.Again(t, cfg), train.Options{
		Files: files, Resume: v.before > 0, Finder: finder, Logger: hclog.New(&hclog.LoggerOptions{Output: &log, Level: hclog.Warn}),
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
	if said := fmt.Sprint(err, log.String()); !strings.Contains(said, "injected fault") && !harmless(fired[0]) {
		t.Errorf("%s: nobody reports it: %s", what, said)
	}
	if _, err := train.Run(t.Context(), testrun.Again(t, cfg), train.Options{Resume: true, Finder: finder}); err != nil {
		t.Errorf("%s: cannot be resumed: %v", what, err)
		return true
	}
	sameDirectory(t, what, v.cfg.Train.Out, cfg.Train.Out)
	return true
}

// harmless tells whether the fault of an operation may go unreported.
func harmless(op faultfs.Op) bool { return false }

// sameDirectory reports where two finished run directories differ, apart from times:
// names of files included, so that no leftover goes unseen.
func sameDirectory(t *testing.T, what, a, b string) {
	t.Helper()
	if diff := cmp.Diff(fileNames(t, a), fileNames(t, b)); diff != "" {
		t.Errorf("%s: the files differ:\n%s", what, diff)
		return
	}
	testrun.SameRun(t, what, a, b)
	for _, name := range []string{rundir.TrajectoryFile, rundir.SummaryFile} {
		if diff := cmp.Diff(timeless(t, filepath.Join(a, name)), timeless(t, filepath.Join(b, name))); diff != "" {
			t.Errorf("%s: %s differs:\n%s", what, name, diff)
		}
	}
}

// fileNames are those of all files below a directory.
func fileNames(t *testing.T, dir string) (names []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && path != dir {
			names = append(names, strings.TrimPrefix(path, dir))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// timeless are the lines of a file of JSON values without times, places and names; none
// of a file that does not exist.
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
		for _, key := range []string{"dir", "name", "seconds", "tokens_per_second", "start_seconds", "plugin_seconds"} {
			delete(v, key)
		}
		list = append(list, v)
	}
	return list
}
