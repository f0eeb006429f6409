// Package report turns the results of a study into readable form: tables in Markdown, CSV
// and LaTeX, figures, and one self-contained page.
//
// It reads run directories and computes means, paired differences and principal
// components (with host/study/stat); host/study/figure draws the figures, and
// host/study/report/page lays out the page. A report depends only on what the runs
// computed: it contains no time, date, speed or absolute path. So the report of a study
// that was interrupted and resumed is identical, byte by byte, to that of one that was
// not.
package report

import (
	"cmp"
	"fmt"

	"github.com/cage-qat/cage/host/study"
	"github.com/cage-qat/cage/host/train/metrics"
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
	Damages []Damage // runs that are left out because one of their files cannot be read
	Stale   []Damage // runs that are left out because they are stale
}

// New computes the report of the results of a study. Tables and figures leave out cells
// that are not done, stale ones, and those with a damaged file. The state of the last in
// results is changed to failed.
func New(s *study.Study, results []study.Result) (*Report, error) {
	for {
		r, err := build(s, results)
		if err == nil || !leaveOut(results, err) {
			return r, err
		}
	}
}

func build(s *study.Study, results []study.Result) (*Report, error) {
	r := &Report{Name: s.Name, Axes: s.Axes, Cells: len(results), States: map[string]int{}}
	r.Damages = runsWith(results, func(x study.Result) bool { return x.Unreadable })
	r.Stale = runsWith(results, func(x study.Result) bool { return x.State == study.Stale })
	for _, result := range results {
		r.States[string(result.State)]++
	}
	var err error
	if r.Tables, err = Tables(s, results); err != nil {
		return nil, err
	}
	if r.Figures, err = allFigures(s, results); err != nil {
		return nil, err
	}
	for _, result := range results {
		run, err := newRun(s, result)
		if err != nil {
			return nil, fmt.Errorf("study %s: cell %s: %w", s.Name, result.Cell.ID, err)
		}
		r.Runs = append(r.Runs, *run)
	}
	return r, nil
}

// Tables computes the tables of a study. Of the runs they need nothing but their results.
func Tables(s *study.Study, results []study.Result) ([]Table, error) {
	var list []Table
	for i, t := range s.Tables {
		table, err := newTable(s, t, results)
		if err != nil {
			return nil, fmt.Errorf("study %s: table %d, %s: %w", s.Name, i+1, cmp.Or(t.Title, t.Metric), err)
		}
		list = append(list, *table)
	}
	return list, nil
}

func allFigures(s *study.Study, results []study.Result) (all []Figure, err error) {
	for i, given := range s.Figures {
		list, err := figures(s, given, results)
		if err != nil {
			return nil, fmt.Errorf("study %s: figure %d, %s: %w", s.Name, i+1, cmp.Or(given.Title, given.Kind), err)
		}
		for _, figure := range list {
			figure.Name = fmt.Sprintf("%02d-%s", len(all)+1, slug(figure.Title))
			all = append(all, *figure)
		}
	}
	return all, nil
}

// Figures computes the figures of a study that need nothing of the runs but their results. It refuses others: curves
// and trajectories.
func Figures(s *study.Study, results []study.Result) ([]Figure, error) {
	for i, f := range s.Figures {
		if f.Kind == study.Curves || f.Kind == study.Trajectories {
			return nil, fmt.Errorf("study %s: figure %d: %s are drawn from the runs, not from their results", s.Name, i+1, f.Kind)
		}
	}
	return allFigures(s, results)
}

// deterministic refuses metrics that another run of the same cell would not repeat.
func deterministic(names ...string) error {
	for _, m := range names {
		if metrics.Timed(m) {
			return fmt.Errorf("%s differs from run to run of the same cell and has no place in a report; cage bench measures speed", m)
		}
	}
	return nil
}
