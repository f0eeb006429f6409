package snapshot_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cage-qat/cage/host/study"
	"github.com/cage-qat/cage/host/study/snapshot"
	"github.com/cage-qat/cage/host/train/config"
)

const studyFile = `
[base]
model = {kind = "toy"}
train = {steps = 10}
schedule = {rate = 0.1}
optimizer = {plugin = "sgd"}
quantizer = {weights = {plugin = "grid"}}
[study]
name = "small"
[[study.axes]]
name = "λ"
key = "method.lambda"
values = [1.0, 2.0]
[[study.axes]]
name = "seed"
key = "seed"
values = [0, 1]
`

var day = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// load writes a study to a new directory, and changes to it.
func load(t testing.TB) *study.Study {
	t.Helper()
	t.Chdir(t.TempDir())
	write(t, "small.toml", studyFile)
	return loadFile(t)
}

func loadFile(t testing.TB) *study.Study {
	t.Helper()
	s, err := study.Load("small.toml")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// programs returns hashes of the programs of plugins, one of which depends on the version.
func programs(version string) map[string]string {
	return map[string]string{"optimizer of x: update": "1f", "weight x: quantize": version}
}

// done writes runs of the given cells, as if they were trained, and returns results with losses.
func done(t testing.TB, s *study.Study, version string, cells ...int) []study.Result {
	t.Helper()
	out := make([]study.Result, len(s.Cells))
	for i, c := range s.Cells {
		out[i] = study.Result{Cell: c, State: study.Missing}
	}
	for _, i := range cells {
		c := s.Cells[i]
		out[i] = study.Result{Cell: c, State: study.Done,
			Summary: map[string]float64{"val_loss": float64(i) + 0.5, "train_seconds": 3}}
		write(t, filepath.Join(c.Run, "run.toml"), string(c.Config.Encode()))
		write(t, filepath.Join(c.Run, "provenance.json"), fmt.Sprintf(
			`{"build": {"device": "cpu", "go": "go1"}, "plugins": [{"name": "grid", "version": %q, "sha256": "ab"}], "programs": {"optimizer of x: update": "1f", "weight x: quantize": %q}}`, version, version))
	}
	return out
}

func write(t testing.TB, path, text string) {
	t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755),
		os.WriteFile(path, []byte(text), 0o644)); err != nil {
		t.Fatal(err)
	}
}

func collect(
	t testing.TB, s *study.Study, results []study.Result, before *snapshot.File, revision string,
) *snapshot.File {
	t.Helper()
	f, err := snapshot.Collect(s, results, before, revision, day)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// again writes a file and reads it back.
func again(t testing.TB, f *snapshot.File) *snapshot.File {
	t.Helper()
	if err := f.Write("kept.json"); err != nil {
		t.Fatal(err)
	}
	out, err := snapshot.Read("kept.json")
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// states formats the states and metrics of results.
func states(results []study.Result) string {
	var list []string
	for _, r := range results {
		text := string(r.State)
		if r.Trained() {
			text += fmt.Sprintf(" %v", r.Summary)
		}
		list = append(list, text)
	}
	return strings.Join(list, ", ")
}

// TestTakeDiverged checks that a diverged cell is kept as such, until it is trained again.
func TestTakeDiverged(t *testing.T) {
	s := load(t)
	results := done(t, s, "1", 0, 1)
	results[1] = study.Result{Cell: results[1].Cell, State: study.Failed, Diverged: true,
		Err: "not finite"}
	f := again(t, collect(t, s, results, nil, "r1"))
	got := f.Results(s)
	if got[1].State != study.Failed || !got[1].Diverged || got[1].Trained() || got[1].Err == "" ||
		len(f.Cells) != 2 {
		t.Errorf("%+v of %+v", got[1], f.Cells)
	}
	if same := again(t, collect(t, s, results, f, "r2")); len(same.Sources) != 1 ||
		same.Sources[0].Revision != "r1" {
		t.Errorf("taken again it is of %+v", same.Sources)
	}
	if other := again(t, collect(t, s, done(t, s, "1", 0, 1), f, "r2")).
		Results(s); other[1].State != study.Done || other[1].Diverged {
		t.Errorf("trained again it is %+v", other[1])
	}
}

// TestDivergedSource checks that cells that are made from a model that diverged are not kept, but
// count as diverged, also if it is the validation loss that is not finite.
func TestDivergedSource(t *testing.T) {
	for name, change := range map[string]func(r *study.Result){
		"failed":  func(r *study.Result) { r.State, r.Summary = study.Failed, nil },
		"no loss": func(r *study.Result) { r.Summary["val_loss"] = math.NaN() },
	} {
		t.Chdir(t.TempDir())
		write(t, "small.toml", quantized)
		s := loadFile(t)
		results := done(t, s, "1", 0)
		results[0].Diverged = true
		change(&results[0])
		s.FindDiverged(results)
		f := again(t, collect(t, s, results, nil, "r1"))
		if got := f.Results(s); len(f.Cells) != 1 || !got[0].Diverged || !got[1].Diverged {
			t.Errorf("%s: %+v of %+v", name, got, f.Cells)
		}
	}
}

// TestCollect checks that results are kept, without times, and that later results are added.
func TestCollect(t *testing.T) {
	s := load(t)
	s.Set = []string{"train.steps=9"}
	first := again(t, collect(t, s, done(t, s, "1", 2, 0), nil, "r1"))
	if got, want := states(
		first.Results(s)), "done map[val_loss:0.5], missing, done map[val_loss:2.5], "+
		"missing"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	results := done(t, s, "2", 1, 2)
	results[2].Summary["val_loss"] = 7
	second := again(t, collect(t, s, results, first, "r2"))
	if got, want := states(
		second.Results(s)), "done map[val_loss:0.5], done map[val_loss:1.5], done map[val_loss:7], "+
		"missing"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if !slices.Equal(second.Set, s.Set) {
		t.Errorf("changes of the base are kept as %v, want %v", second.Set, s.Set)
	}
	var revisions []string
	for _, c := range second.Cells {
		revisions = append(revisions, second.Sources[c.Source].Revision)
	}
	if got := strings.Join(revisions, " "); got != "r1 r2 r2" {
		t.Errorf("the cells were taken over by %s, want r1 r2 r2", got)
	}
	source := second.Sources[0]
	if source.Date != "2026-11-21" || len(source.Builds) != 1 || source.Builds[0].Go != "go1" ||
		len(source.Plugins) != 1 || source.Plugins[0].Version != "2" {
		t.Errorf("source %+v", source)
	}
	if list := second.SourcesOf(map[string]bool{s.Cells[0].ID: true}); len(list) != 1 ||
		list[0].Revision != "r1" {
		t.Errorf("the first cell is of %+v", list)
	}
}

// TestUnknown checks that cells that the study file no longer has are listed, and are not kept.
func TestUnknown(t *testing.T) {
	s := load(t)
	f := collect(t, s, done(t, s, "1", 0, 1), nil, "r1")
	write(t, "small.toml", strings.Replace(studyFile, "steps = 10", "steps = 11", 1))
	now := loadFile(t)
	if list := f.Unknown(now); len(list) != 2 || list[0] != s.Cells[0].ID {
		t.Errorf("unknown: %v", list)
	}
	if list := f.Unknown(s); len(list) != 0 {
		t.Errorf("of the study that was kept, unknown: %v", list)
	}
	if f := collect(t, now, done(t, now, "1"), f, "r2"); len(f.Cells) != 0 {
		t.Errorf("the cells of another configuration were taken over: %v", f.Cells)
	}
}

// TestFindStale checks that results are stale only if plugins return other programs or files
// contain other tokens.
func TestFindStale(t *testing.T) {
	s := load(t)
	f := collect(t, s, done(t, s, "1", 0, 1, 2), nil, "r1")
	f.Sources[0].Data = map[string]string{"train.tokens": "aa"}
	now := func(f config.Finding) study.Survey {
		return func(_ context.Context, list []*config.Config) []config.Finding {
			out := make([]config.Finding, len(list))
			for i, cfg := range list {
				if cfg.Method.CAGE.Lambda == 1 {
					out[i] = f
					continue
				}
				out[i] = config.Finding{Programs: programs("1")}
			}
			return out
		}
	}
	for name, tt := range map[string]struct {
		finding config.Finding
		want    string // part of the reason; empty: none is stale
	}{
		"nothing": {config.Finding{Programs: programs("1"),
			Data: map[string]string{"train.tokens": "aa"}}, ""},
		"another program": {config.Finding{Programs: programs("2")}, "now return other programs"},
		"one program less": {config.Finding{Programs: map[string]string{"weight x: quantize": "1"}},
			"now return other programs"},
		"other tokens": {config.Finding{Programs: programs("1"),
			Data: map[string]string{"train.tokens": "bb"}}, "the tokens in train.tokens have changed"},
	} {
		results := f.Results(s)
		if err := f.FindStale(t.Context(), s, results, now(tt.finding)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		want := "done, done, done, missing"
		if tt.want != "" {
			want = "stale, stale, done, missing"
		}
		var got []string
		for _, r := range results {
			got = append(got, string(r.State))
		}
		if strings.Join(got, ", ") != want || !strings.Contains(results[0].Err, tt.want) {
			t.Errorf("%s: got %v (%s), want %s (%s)", name, got, results[0].Err, want, tt.want)
		}
	}
	results := f.Results(s)
	var unknown *study.NotCompared
	if err := f.FindStale(t.Context(), s, results,
		now(config.Finding{Err: errors.New("no plugin")})); !errors.As(err, &unknown) ||
		unknown.Runs != 2 {
		t.Errorf("without a plugin: %v", err)
	}
	if results[0].State != study.Done {
		t.Errorf("what could not be compared is %s", results[0].State)
	}
}

// TestTakeRefuses checks that results without a readable provenance are not kept.
func TestTakeRefuses(t *testing.T) {
	for want, change := range map[string]func(t *testing.T, s *study.Study){
		"cannot read the provenance": func(t *testing.T, s *study.Study) {
			write(t, filepath.Join(s.Cells[1].Run, "provenance.json"), "{")
		},
		"no such file": func(t *testing.T, s *study.Study) {
			if err := os.Remove(filepath.Join(s.Cells[1].Run, "provenance.json")); err != nil {
				t.Fatal(err)
			}
		},
	} {
		s := load(t)
		results := done(t, s, "1", 0, 1)
		change(t, s)
		if _, err := snapshot.Collect(s, results, nil, "r1", day); err == nil ||
			!strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), s.Cells[1].ID) {
			t.Errorf("got %v, want an error about %s with %q", err, s.Cells[1].ID, want)
		}
	}
}

// TestOtherTokens checks that results of different data are not kept in one file.
func TestOtherTokens(t *testing.T) {
	t.Chdir(t.TempDir())
	write(t, "t.tokens", "")
	write(t, "v.tokens", "")
	write(t, "quiz.toml", quiz)
	write(t, "small.toml", asking)
	s := loadFile(t)
	results := done(t, s, "1", 0, 1)
	for i, hash := range []string{"aa", "bb"} {
		cfg, err := s.Cells[i].Config.Changed(
			func(cfg *config.Config) error { cfg.Data.TrainSHA256 = strings.Repeat(hash, 32); return nil })
		if err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(s.Cells[i].Run, "run.toml"), string(cfg.Encode()))
	}
	if _, err := snapshot.Collect(s, results, nil, "r1", day); err == nil ||
		!strings.Contains(err.Error(), "it was trained on different tokens in t.tokens") {
		t.Errorf("got %v", err)
	}
}

// TestReadRefuses checks the errors for damaged files, and for unknown keys.
func TestReadRefuses(t *testing.T) {
	t.Chdir(t.TempDir())
	const sources = `"sources": [{"date": "d", "revision": "r", "builds": null, "plugins": null}]`
	for text, want := range map[string]string{
		`{"study": "s", "more": 1}`: "more: unknown key",
		`{"cells": []}`:             "names no study",
		`{"study": "s"} {}`:         "after top-level value",
		`{"study": "s", ` + sources +
			`, "cells": [{"source": 0}]}`: "has no ID",
		`{"study": "s", ` + sources +
			`, "cells": [{"id": "a", "source": -1}]}`: "has source -1",
		`{"study": "s", ` + sources +
			`, "cells": [{"id": "a", "source": 1}]}`: "has source 1, but there are 1 sources",
		`{"study": "s", ` + sources +
			`, "cells": [{"id": "x-a", "source": 0}, {"id": "y-a", "source": 0}]}`: "two cells have the " +
			"configuration of y-a",
	} {
		write(t, "kept.json", text)
		if _, err := snapshot.Read("kept.json"); err == nil ||
			!strings.HasPrefix(err.Error(), "kept.json was not written by ") ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

// TestOtherTokensOfOthers checks that a result stays if the tokens of another cell have changed,
// also where both were kept at once.
func TestOtherTokensOfOthers(t *testing.T) {
	t.Chdir(t.TempDir())
	write(t, "small.toml", `
[base]
model = {layers = 1, width = 32, heads = 2, context = 16}
data = {validation = "v.tokens"}
train = {steps = 1, batch = 2}
schedule = {rate = 3e-3}
optimizer = {plugin = "adamw"}
[study]
name = "small"
[[study.axes]]
name = "data"
key = "data.train"
values = ["wiki.tokens", "code.tokens"]
`)
	s := loadFile(t)
	run := func(wiki string, cells ...int) []study.Result {
		out := make([]study.Result, len(s.Cells))
		for i, c := range s.Cells {
			out[i] = study.Result{Cell: c, State: study.Missing}
		}
		for _, i := range cells {
			c := s.Cells[i]
			out[i] = study.Result{Cell: c, State: study.Done,
				Summary: map[string]float64{"val_loss": float64(wiki[0])}}
			hash := strings.Repeat([]string{wiki, "cc"}[i], 32)
			write(t, filepath.Join(c.Run, "run.toml"), strings.Replace(string(c.Config.Encode()),
				`train_sha256 = ""`, fmt.Sprintf("train_sha256 = %q", hash), 1))
			write(t, filepath.Join(c.Run, "provenance.json"),
				`{"build": {"device": "cpu", "go": "go1"}, "plugins": [], "programs": {"a": "1f"}}`)
		}
		return out
	}
	f := collect(t, s, run("aa", 0, 1), nil, "r1")
	g := collect(t, s, run("bb", 0), f, "r2")
	if len(g.Cells) != 2 {
		t.Error("the result on code.tokens is lost")
	}
}

// TestCostsAskedLater checks that costs are added to results that were kept before a table asked
// for them.
func TestCostsAskedLater(t *testing.T) {
	s := load(t)
	results := done(t, s, "1", 0)
	results[0].Summary["seconds"] = 7
	f := collect(t, s, results, nil, "r1")
	s.Tables[0].Also = []string{"seconds"}
	g := collect(t, s, results, f, "r2")
	if _, ok := g.Cells[0].Metrics["seconds"]; !ok {
		t.Error("no costs", g.Cells[0].Metrics)
	}
}
