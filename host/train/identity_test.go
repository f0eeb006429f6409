package train_test

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cage-qat/cage/host/deploy/trained"
	"github.com/cage-qat/cage/host/internal/testrun"
	"github.com/cage-qat/cage/host/train"
	"github.com/cage-qat/cage/host/train/checkpoint"
	"github.com/cage-qat/cage/host/train/config"
	"github.com/cage-qat/cage/host/train/rundir"
	"github.com/cage-qat/cage/internal/effort"
	"github.com/cage-qat/cage/internal/plaintoml"
)

// content is what a directory holds, by path.
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

// TestRemovedDirectory: a run whose directory was removed, or replaced by that of another
// run, ends with an error and writes nothing more there.
func TestRemovedDirectory(t *testing.T) {
	effort.Long(t, "trains several runs")
	other := testrun.Config(t, "seed=3")
	runParts(t, other, 2)
	cases := map[string]struct {
		when string
		do   func(dir string) error
	}{
		"removed":                             {"step 6/20", os.RemoveAll},
		"removed before the last evaluation":  {"step 20/20", os.RemoveAll},
		"replaced by another run":             {"step 6/20", func(dir string) error { return replaceRun(dir, other.Train.Out) }},
		"replaced before the last evaluation": {"step 20/20", func(dir string) error { return replaceRun(dir, other.Train.Out) }},
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
			summary, err := train.Run(t.Context(), cfg, train.Options{Finder: testrun.Finder(t), Console: console})
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

// replaceRun puts a copy of another run in the place of one.
func replaceRun(dir, other string) error {
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	return os.CopyFS(dir, os.DirFS(other))
}

// TestForeignCheckpoint: a run does not go on from, and is not evaluated with, a
// checkpoint of another run.
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
	if err := os.WriteFile(rundir.At(cfg.Train.Out).Checkpoints().Join(name).Name, foreign, 0o600); err != nil {
		t.Fatal(err)
	}
	before := content(t, cfg.Train.Out)
	_, err = train.Run(t.Context(), testrun.Again(t, cfg), train.Options{Resume: true, Finder: testrun.Finder(t)})
	if err == nil || !strings.Contains(err.Error(), name+" belongs to another run") {
		t.Errorf("resume: %v", err)
	}
	if diff := cmp.Diff(before, content(t, cfg.Train.Out)); diff != "" {
		t.Errorf("the run was changed:\n%s", diff)
	}
	if _, err := trained.Open(t.Context(), cfg.Train.Out, trained.Options{Finder: testrun.Finder(t)}); err == nil ||
		!strings.Contains(err.Error(), name+" belongs to another run") {
		t.Errorf("open: %v", err)
	}
}

// withoutIdentity makes a run look like one of a version that gave runs no identity.
func withoutIdentity(t *testing.T, cfg *config.Config) {
	t.Helper()
	dir := rundir.At(cfg.Train.Out).Checkpoints()
	s := testrun.Newest(t, cfg.Train.Out)
	if _, some := s.Meta["run"]; !some {
		t.Error("the checkpoint has no identity")
	}
	delete(s.Meta, "run")
	if _, err := checkpoint.Save(t.Context(), dir, s); err != nil {
		t.Fatal(err)
	}
	text, err := rundir.At(cfg.Train.Out).Provenance().ReadFile()
	if err != nil {
		t.Fatal(err)
	}
	var fields map[string]any
	if err := json.Unmarshal(text, &fields); err != nil {
		t.Fatal(err)
	}
	if _, some := fields["run"]; !some {
		t.Error("provenance.json has no identity")
	}
	delete(fields, "run")
	if text, err = json.Marshal(fields); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(rundir.At(cfg.Train.Out).Provenance().Name, text, 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestOldRunWithoutIdentity: it is accepted, and gets one.
func TestOldRunWithoutIdentity(t *testing.T) {
	effort.Long(t, "trains several runs")
	cfg := testrun.Config(t)
	runParts(t, cfg, 4)
	withoutIdentity(t, cfg)
	runParts(t, cfg, 6)
	identity := func() (id string) {
		if err := testrun.Checkpoint(t, cfg.Train.Out, 6).Meta.Get("run", &id); err != nil || id == "" {
			t.Fatalf("identity %q, %v", id, err)
		}
		return id
	}
	first := identity()
	testrun.Train(t, testrun.Again(t, cfg), train.Options{Resume: true})
	if identity() != first {
		t.Error("resuming changed the identity")
	}
}

// TestCheckpointsWithoutRun: a new run does not begin among checkpoints of another one,
// which would push its own out.
func TestCheckpointsWithoutRun(t *testing.T) {
	cfg := testrun.Config(t, "train.keep=1")
	runParts(t, cfg, 4)
	for _, name := range []string{rundir.ConfigFile, rundir.ProvenanceFile, rundir.MetricsFile, rundir.SummaryFile} {
		if err := os.Remove(filepath.Join(cfg.Train.Out, name)); err != nil {
			t.Fatal(err)
		}
	}
	for _, resume := range []bool{false, true} {
		_, err := train.Run(t.Context(), testrun.Again(t, cfg, "seed=3"), train.Options{Resume: resume, StopAfter: 2, Finder: testrun.Finder(t)})
		var ce *plaintoml.Error
		if !errors.As(err, &ce) || ce.Key != "train.out" || !strings.Contains(err.Error(), "has checkpoints of steps [4], but no run.toml") {
			t.Errorf("resume %v: %v", resume, err)
		}
	}
	if got := savedSteps(t, cfg); len(got) != 1 || got[0] != 4 {
		t.Errorf("the checkpoints are of steps %v", got)
	}
}

// TestRecordsWithoutRun: nor does it begin among records of another one, which it would change, or with its summary.
func TestRecordsWithoutRun(t *testing.T) {
	effort.Long(t, "trains several runs")
	for _, name := range []string{rundir.MetricsFile, rundir.TrajectoryFile, rundir.SamplesFile, rundir.SummaryFile} {
		cfg := testrun.Config(t)
		path := filepath.Join(cfg.Train.Out, name)
		if err := errors.Join(os.MkdirAll(cfg.Train.Out, 0o755), os.WriteFile(path, []byte("{}\n"), 0o644)); err != nil {
			t.Fatal(err)
		}
		for _, resume := range []bool{false, true} {
			_, err := train.Run(t.Context(), cfg, train.Options{Resume: resume, StopAfter: 2, Finder: testrun.Finder(t)})
			var ce *plaintoml.Error
			if !errors.As(err, &ce) || ce.Key != "train.out" || !strings.Contains(err.Error(), "has the "+name+" of another run, but no run.toml") {
				t.Errorf("%s, resume %v: %v", name, resume, err)
			}
		}
		if text, err := os.ReadFile(path); err != nil || string(text) != "{}\n" {
			t.Errorf("%s holds %q, %v", name, text, err)
		}
	}
}
