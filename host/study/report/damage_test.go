package report_test

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cage-qat/cage/host/study"
	"github.com/cage-qat/cage/host/study/report"
)

// TestDamagedRunsAreLeftOut checks that a run with a damaged file is left out, and is listed with
// the name of the file.
func TestDamagedRunsAreLeftOut(t *testing.T) {
	for _, tc := range []struct{ method, bits, seed, file, content string }{
		{"QuEST", "2", "0", "summary.json", `{"val_loss": 1`},
		{"CAGE", "4", "0", "metrics.jsonl", "{\"step\": 1, \"loss\": 2}\n{\"step\":\n"},
		{"CAGE", "2", "1", "trajectory.jsonl", "{\"step\":1,\"x\":[1,2,3]}\n{\"step\":2,\"x\":[1,2]}\n"},
		{"full precision", "16", "0", "provenance.json", "\x00\x00"},
	} {
		s := parse(t, grid, filepath.Join(t.TempDir(), "studies", "bits"))
		results(t, s)
		intact := reportOf(t, s)
		var cell study.Cell
		for _, c := range s.Cells {
			if c.Labels["method"] == tc.method && c.Labels["bits"] == tc.bits &&
				c.Labels["seed"] == tc.seed {
				cell = c
			}
		}
		write(t, cell.Dir, tc.file, tc.content)
		r := reportOf(t, s)
		if len(r.Unreadable) != 1 || r.Unreadable[0].Run != cell.Dir ||
			!strings.Contains(r.Unreadable[0].Err, tc.file) {
			t.Errorf("a damaged %s: left out are %+v", tc.file, r.Unreadable)
		}
		if got, want := r.States["done"], intact.States["done"]-1; got != want ||
			r.States["failed"] != intact.States["failed"]+1 {
			t.Errorf("a damaged %s: the cells are %v, before %v", tc.file, r.States, intact.States)
		}
		before, after := entries(intact), entries(r)
		if after != before-1 {
			t.Errorf("a damaged %s: %d values in tables, before %d", tc.file, after, before)
		}
		page := pageOf(t, r)
		for name, text := range map[string][]byte{"page": page, "Markdown": r.Markdown()} {
			if !bytes.Contains(text, []byte("1 cannot be read and is left out")) ||
				!bytes.Contains(text, []byte("cannot be read: ")) {
				t.Errorf("a damaged %s: the %s does not say so", tc.file, name)
			}
		}
	}
}

// TestDamagedRunsAreFoundTogether checks that one pass over the runs finds all that are damaged, so
// that a report is not made again for each of them.
func TestDamagedRunsAreFoundTogether(t *testing.T) {
	s := parse(t, grid, filepath.Join(t.TempDir(), "studies", "bits"))
	results(t, s)
	for i, c := range s.Cells {
		if c.Labels["method"] == "QuEST" {
			name := map[string]string{"2": "trajectory.jsonl", "4": "metrics.jsonl"}[c.Labels["bits"]]
			if i%3 == 0 {
				name = "provenance.json"
			}
			write(t, c.Dir, name, "{\n{}\n")
		}
	}
	list, err := s.Results()
	if err != nil {
		t.Fatal(err)
	}
	if damaged, err := report.Damaged(s, list); err != nil || len(damaged) != 6 {
		t.Errorf("one pass finds %d of 6 damaged runs: %v, %v", len(damaged), damaged, err)
	}
	if r := newReport(t, s, list); len(r.Unreadable) != 6 {
		t.Errorf("left out are %+v", r.Unreadable)
	}
}

// entries returns the number of values in tables.
func entries(r *report.Report) int {
	n := 0
	for _, t := range r.Tables {
		for _, row := range t.Entries {
			for _, e := range row {
				n += e.N
			}
		}
	}
	return n
}

// TestStaleRunsAreLeftOut checks that stale runs are left out, and are listed with the change.
func TestStaleRunsAreLeftOut(t *testing.T) {
	s := parse(t, grid, filepath.Join(t.TempDir(), "studies", "bits"))
	results(t, s)
	intact := reportOf(t, s)
	list, err := s.Results()
	if err != nil {
		t.Fatal(err)
	}
	stale := 0
	for i, r := range list {
		if r.State == study.Done && r.Cell.Labels["method"] == "CAGE" {
			stale++
			list[i] = study.Result{Cell: r.Cell, State: study.Stale, Err: "a plugin has changed"}
		}
	}
	r := newReport(t, s, list)
	if len(r.Stale) != stale || stale < 2 || r.Stale[0].Err != "a plugin has changed" {
		t.Errorf("%d stale runs, left out are %+v", stale, r.Stale)
	}
	if before, after := entries(intact), entries(r); after != before-stale {
		t.Errorf("%d values in tables, before %d", after, before)
	}
	page := pageOf(t, r)
	for name, text := range map[string][]byte{"page": page, "Markdown": r.Markdown()} {
		if !bytes.Contains(text,
			[]byte("are made by another plugin or of other data and are left out")) ||
			!bytes.Contains(text, []byte("a plugin has changed")) {
			t.Errorf("the %s does not say so", name)
		}
	}
}
