// Package report presents the results of a study as tables in Markdown, CSV and LaTeX, as figures,
// and as one self-contained HTML page.
//
// It reads run directories and computes means, paired differences and principal components;
// host/study/figure draws the figures. A report depends only on the computed results: it contains
// no time, date, speed or absolute path. So the report of a study that was interrupted and resumed
// is identical, byte for byte, to that of an uninterrupted one.
package report

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/cage-qat/cage/host/study"
	"github.com/cage-qat/cage/host/train/metrics"
	"github.com/cage-qat/cage/host/train/rundir"
	"github.com/cage-qat/cage/internal/lists"
	"github.com/cage-qat/cage/internal/plainjson"
	"github.com/cage-qat/cage/internal/safetext"
	"github.com/cage-qat/cage/internal/vfs"
)

// Report is the report of a study.
type Report struct {
	Name    string
	Axes    []study.Axis
	Cells   int            // number of cells in the study
	States  map[string]int // number of cells in each state, by its name
	Tables  []Table
	Figures []Figure
	Runs    []Run
	// Provenances lists the distinct provenances of runs in JSON: build, plugins, hashes of programs.
	// Runs by the same build with the same plugins share one.
	Provenances []string
	Unreadable  []OmittedRun // runs that are omitted because one of their files cannot be read
	Stale       []OmittedRun // runs that are omitted because they are stale
}

// New computes the report of a study from its results. Tables and figures omit cells that are not
// done, are stale, or have a damaged file. If a file is damaged, New sets the cell's state in
// results to failed.
func New(s *study.Study, results []study.Result) (*Report, error) {
	for {
		damaged := unreadable{}
		r, err := build(s, results, damaged)
		if err != nil || len(damaged) == 0 {
			return r, err
		}
		for i, r := range results {
			if err := damaged[r.Cell.ID]; err != nil {
				results[i] = study.Damaged(r.Cell, err)
			}
		}
	}
}

// unreadable holds, by the ID of a cell, why a file of its run cannot be read.
type unreadable map[string]error

// build computes a report without the files that cannot be read, and adds these to damaged.
func build(s *study.Study, results []study.Result, damaged unreadable) (*Report, error) {
	r := &Report{Name: s.Name, Axes: s.Axes, Cells: len(results), States: map[string]int{}}
	left := map[string]bool{} // omitted runs, by ID: cells may share a run
	for _, result := range results {
		r.States[string(result.State)]++
		omitted := OmittedRun{result.Cell.Dir, result.Err}
		switch {
		case left[result.Cell.ID]:
		case result.Unreadable:
			r.Unreadable, left[result.Cell.ID] = append(r.Unreadable, omitted), true
		case result.State == study.Stale:
			r.Stale, left[result.Cell.ID] = append(r.Stale, omitted), true
		}
	}
	r.Tables = Tables(s, results)
	var err error
	if r.Figures, err = allFigures(s, results, damaged); err != nil {
		return nil, err
	}
	for _, result := range results {
		if err := r.addRun(s, result, damaged); err != nil {
			return nil, fmt.Errorf("study %s: cell %s: %w", s.Name, result.Cell.ID, err)
		}
	}
	return r, nil
}

// Tables computes the tables of a study. It needs only results, not the runs.
func Tables(s *study.Study, results []study.Result) []Table {
	return lists.Map(s.Tables, func(t study.Table) Table { return newTable(s, t, results) })
}

func allFigures(
	s *study.Study, results []study.Result, damaged unreadable,
) (all []Figure, err error) {
	for i, f := range s.Figures {
		list, err := figures(s, f, results, damaged)
		if err != nil {
			return nil, fmt.Errorf("study %s: figure %d, %s: %w", s.Name, i+1, cmp.Or(f.Title, f.Kind), err)
		}
		for _, figure := range list {
			figure.Name = fmt.Sprintf("%02d-%s", len(all)+1, slug(figure.Title))
			all = append(all, *figure)
		}
	}
	return all, nil
}

// Figures computes the figures of a study without reading runs. It is an error if a figure needs
// runs, as curves and trajectories do.
func Figures(s *study.Study, results []study.Result) ([]Figure, error) {
	for i, f := range s.Figures {
		if f.Kind == study.Curves || f.Kind == study.Trajectories {
			return nil, fmt.Errorf("study %s: figure %d: %s are drawn from the runs, not from their results",
				s.Name, i+1, f.Kind)
		}
	}
	return allFigures(s, results, nil)
}

// OmittedRun is a run that a report omits because one of its files cannot be read, or because it is
// stale.
type OmittedRun struct {
	Run string `json:"run"` // directory of the run
	Err string `json:"error"`
}

// Run is a cell as it is listed in the report.
type Run struct {
	ID         string
	Labels     []string // in the order of the axes
	State      study.State
	Err        string // the error of a failed cell
	Summary    map[string]float64
	Settings   []string // the cell's changes to the base
	Config     string   // resolved, in TOML; without the location of the run
	Provenance int      // index plus 1 in Report.Provenances; 0: the cell has not been trained
}

func (r *Report) addRun(s *study.Study, result study.Result, damaged unreadable) error {
	out := Run{
		ID: result.Cell.ID, Labels: result.Cell.Of(s.AxisNames()), State: result.State,
		Err: anonymize(safetext.Valid(result.Err)), Summary: map[string]float64{},
	}
	for name, v := range result.Summary {
		if !metrics.Timed(name) {
			out.Summary[name] = v
		}
	}
	for _, set := range result.Cell.Set {
		out.Settings = append(out.Settings, anonymize(set.Key+" = "+set.Value))
	}
	table := ""
	for l := range strings.Lines(string(result.Cell.Config.Encode())) {
		if strings.HasPrefix(l, "[") {
			table = strings.TrimSpace(l)
		}
		if table != "[train]" || !strings.HasPrefix(l, "out = ") {
			out.Config += anonymize(l)
		}
	}
	if result.Trained() {
		provenance, err := readProvenance(rundir.At(result.Cell.Run).Provenance())
		if err != nil {
			damaged[result.Cell.ID] = err
		}
		if provenance != "" {
			if !slices.Contains(r.Provenances, provenance) {
				r.Provenances = append(r.Provenances, provenance)
			}
			out.Provenance = 1 + slices.Index(r.Provenances, provenance)
		}
	}
	r.Runs = append(r.Runs, out)
	return nil
}

// readProvenance reads the provenance of a run, without paths, times, and the random IDs of runs;
// "" if there is none.
func readProvenance(path vfs.Path) (string, error) {
	var v any
	if err := plainjson.ReadFile(path, &v); errors.Is(err, fs.ErrNotExist) {
		return "", nil
	} else if err != nil {
		return "", err
	}
	if fields, ok := v.(map[string]any); ok {
		delete(fields, "run")
		// If this run started from the checkpoint of another run, initial contains that run's ID.
		if initial, ok := fields["initial"].(map[string]any); ok && initial["run"] != nil {
			delete(initial, "run")
			delete(initial, "files")
		}
	}
	out, err := json.MarshalIndent(anonymizeJSON(v), "", "  ")
	return string(out), err
}

func anonymizeJSON(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for key := range v {
			v[key] = anonymizeJSON(v[key])
		}
	case []any:
		for i := range v {
			v[i] = anonymizeJSON(v[i])
		}
	case string:
		return anonymize(v)
	}
	return v
}

// Failed returns the runs that have failed or are stale.
func (r *Report) Failed() []Run {
	return slices.DeleteFunc(slices.Clone(r.Runs), func(run Run) bool {
		return run.State != study.Failed && run.State != study.Stale
	})
}
