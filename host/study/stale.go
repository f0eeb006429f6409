package study

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/cage-qat/cage/host/train/config"
	"github.com/cage-qat/cage/host/train/rundir"
	"github.com/cage-qat/cage/internal/vfs"
)

// Survey looks at the plugins and the data with which the cells would be trained now, and
// returns a finding for each configuration.
type Survey func(ctx context.Context, list []*config.Config) []config.Finding

// FindStale gives the state [Stale] to results of which a plugin or the data has changed
// since: in one table with cells trained now, they would mix two algorithms. If the
// questions of an evaluation have changed, the cell becomes [Unevaluated]. Cells that are
// running or missing are left out. Without a survey, only questions are compared. The
// error is about cells that could not be compared, whose results stay as they are.
func (s *Study) FindStale(ctx context.Context, results []Result, survey Survey) error {
	s.findOutdated(results)
	defer s.findRemade(results)
	if survey == nil {
		return nil
	}
	var list []*config.Config
	at := map[string]int{} // in list, by ID: cells may share a run
	for _, r := range results {
		if _, known := at[r.Cell.ID]; !known && r.State != Missing && r.State != Running {
			at[r.Cell.ID] = len(list)
			list = append(list, r.Cell.Config)
		}
	}
	if len(list) == 0 {
		return nil
	}
	findings := survey(ctx, list)
	failed := slices.DeleteFunc(slices.Clone(findings), func(f config.Finding) bool { return f.Err == nil })
	for i, r := range results {
		if k, compared := at[r.Cell.ID]; compared && findings[k].Stale != "" {
			results[i] = Result{Cell: r.Cell, State: Stale, Err: findings[k].Stale}
		}
	}
	if len(failed) > 0 {
		return &NotCompared{len(failed), failed[0].Err}
	}
	return nil
}

// NotCompared is the error for results that could not be checked for being stale.
type NotCompared struct {
	Runs  int   // how many runs
	First error // why the first could not be checked
}

func (e *NotCompared) Error() string {
	return fmt.Sprintf("%d runs could not be compared with the plugins and the data as they are now: %v", e.Runs, e.First)
}

func (e *NotCompared) Unwrap() error { return e.First }

// StaleDir returns the directory into which stale runs are moved.
func (s *Study) StaleDir() string { return s.at(rundir.StudyStale).Name }

// moveToStale moves a directory into that of stale runs, under the given name and a number.
func (s *Study) moveToStale(dir vfs.Path, name string) error {
	if err := s.at(rundir.StudyStale).MkdirAll(); err != nil {
		return err
	}
	to, err := s.at(rundir.StudyStale).Unused(func(n int) string { return fmt.Sprintf("%s-%d", name, n) })
	if err != nil {
		return err
	}
	if err := dir.Rename(to.Name); err != nil {
		return err
	}
	return errors.Join(to.Dir().SyncDir(), dir.Dir().SyncDir())
}
