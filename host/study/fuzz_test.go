package study

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cage-qat/cage/host/train/rundir"
	"github.com/cage-qat/cage/internal/plaintoml"
	"github.com/cage-qat/cage/internal/testing/badfiles"
)

// FuzzParse checks that Parse does not panic on any file, and that each error is one line that
// names a TOML file and, if that is the parsed file, one of its lines.
func FuzzParse(f *testing.F) {
	f.Add([]byte(small))
	f.Add([]byte(strings.Replace(small, `base = "base.toml"`,
		`base = {model.kind = "toy", train.steps = 3, schedule.rate = 1}`, 1)))
	for _, c := range badfiles.Read(f, leastBad) {
		f.Add(c.File("study.toml"))
	}
	dir := f.TempDir()
	write(f, filepath.Join(dir, "base.toml"), base)
	path := filepath.Join(dir, "study.toml")
	f.Fuzz(func(t *testing.T, text []byte) {
		s, err := Parse(path, text)
		if err == nil {
			for _, c := range s.Cells {
				if c.ID == "" || len(c.Labels) != len(s.Axes) {
					t.Fatalf("cell %+v", c)
				}
			}
			return
		}
		var all plaintoml.Errors
		if !errors.As(err, &all) {
			one, ok := errors.AsType[*plaintoml.Error](err)
			if !ok {
				t.Fatalf("no *plaintoml.Error in %T: %v", err, err)
			}
			all = plaintoml.Errors{one}
		}
		for _, e := range all {
			placed := e.File == path && e.Line >= 1 && e.Line <= 1+strings.Count(string(text), "\n")
			if !placed && !strings.HasSuffix(e.File, ".toml") || e.Msg == "" ||
				strings.Contains(e.Error(), "\n") {
				t.Fatalf("%#v: %v", e, e)
			}
		}
	})
}

// FuzzState checks that a cell has a state, whatever its files contain. If a file is damaged, the
// cell counts as failed, and the error names the file.
func FuzzState(f *testing.F) {
	f.Add([]byte(`{"machine":"m","process":7,"since":"2026-11-26T12:00:00Z"}`),
		[]byte(`{"error":"no","exit":"exit status 1","attempts":2}`),
		[]byte(`{"completed":true,"val_loss":1}`), []byte(`{"rows":"12"}`))
	f.Add([]byte(`{}`), []byte(`[`), []byte(``), []byte(`{}`))
	f.Add([]byte(`null`), []byte(`null`), []byte(`{"completed":1}`), []byte(`null`))
	f.Add([]byte(`[]`), []byte(``), []byte(`{"completed":true}`),
		[]byte(`{"rows":"12","metrics":{"piqa.acc":0.5}}`))
	dir := f.TempDir()
	write(f, filepath.Join(dir, "base.toml"), base)
	path := filepath.Join(dir, "study.toml")
	s := parsed(f, path, small)
	s.Out = filepath.Join(dir, "out")
	cell := filepath.Join(s.Out, "cells", "a")
	e := &positionedEvaluation{evaluation: &taskQuestions{}}
	s.evaluations = []*positionedEvaluation{e}
	f.Fuzz(func(t *testing.T, claim, failed, summary, evaluation []byte) {
		c := Cell{ID: "a", Dir: cell}
		at := rundir.At(cell)
		answers := s.answers(c, e)
		if err := errors.Join(answers.MkdirAll(), s.at(claimsDir).MkdirAll()); err != nil {
			t.Fatal(err)
		}
		for path, content := range map[string][]byte{claimFile(s.at(), "a").Name: claim,
			at.Join(failedFile).Name: failed, at.Summary().Name: summary,
			answers.Join(evaluationFile).Name: evaluation} {
			write(t, path, string(content))
		}
		lock, err := claimFile(s.at(), "a").Lock()
		if err != nil {
			t.Fatal(err)
		}
		if all, err := Holders(s.at()); err != nil || len(all) != 1 {
			t.Fatalf("%v, %v", all, err)
		}
		if err := lock.Unlock(); err != nil {
			t.Fatal(err)
		}
		r := s.readCellResult(c, false)
		if r.State == "" || r.Unreadable && !strings.Contains(r.Err, cell) || r.State == Done &&
			!r.Trained() || r.State == Failed && r.Err == "" && len(failed) == 0 {
			t.Fatalf("%+v", r)
		}
	})
}
