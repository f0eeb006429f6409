package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/cage-qat/cage/host/study"
	"github.com/cage-qat/cage/host/study/report"
	"github.com/cage-qat/cage/host/study/snapshot"
)

func newStudyKeep() *cobra.Command {
	var out string
	var forget bool
	cmd := &cobra.Command{
		Use:   "keep FILE",
		Short: "Write the results of a study to a small file",
		Long: `Write the results of all cells that are done to a small JSON file, with their provenance:
builds, plugins, hashes of programs and data, the revision of cage, the date. The file can
be committed in place of the runs; 'cage study run' and 'status' read it with --kept.

Results that are already in the file are kept unless their cells were trained again, so
that parts of a study can be run on different machines. Stale results are left out, and
results on other tokens are dropped. --forget drops results of cells that are no longer in
the study file.`,
		Args: exactly(1, "one study file"),
	}
	cmd.Flags().BoolVar(&forget, "forget", false,
		"drop results of cells that are no longer in the study file")
	cmd.Flags().StringVar(&out, "out", "",
		"`FILE` to write or update (default: the study's name and .json)")
	return withOutput(cmd, func(cmd *cobra.Command, args []string) (*output, error) {
		s, results, err := loadResults(cmd, args[0])
		if err != nil {
			return nil, err
		}
		path := cmp.Or(out, s.Name+".json")
		file, err := snapshot.Update(path, s, results, forget, buildVersion(), time.Now().UTC())
		if err != nil {
			return nil, err
		}
		return textOutput(map[string]any{"file": path, "cells": len(file.Cells)},
			"%s: %d of %d cells\n", path, len(file.Cells), study.Count(results).Cells), nil
	})
}

func keptResults(cmd *cobra.Command, s *study.Study, path string) ([]study.Result, error) {
	file, err := snapshot.ReadFor(s, path)
	if err != nil {
		return nil, err
	}
	results := file.Results(s)
	return results, findStale(cmd, s, func(ctx context.Context, survey study.Survey) error {
		return file.FindStale(ctx, s, results, survey)
	})
}

func newStudyCheck() *cobra.Command {
	var keptFile string
	cmd := &cobra.Command{
		Use:   "check FILE",
		Short: "Compare the results of a study with a snapshot",
		Long: `Compare the results of a study with those in a file of 'cage study keep', for example
after training it on another machine, with another build or with a changed plugin. Only
cells that are done in both are compared. The command counts the cells with bitwise equal
results, and lists the means, differences and choices in the study's tables that are
printed differently now, with the 95 % confidence interval of the result in the file.

The exit code is 1 if a new result is outside of that interval, or if there is no interval
because there are fewer than two replicates.`,
		Args: exactly(1, "one study file"),
	}
	cmd.Flags().StringVar(&keptFile, "kept", "",
		"`FILE` of 'cage study keep' to compare with (required)")
	return withOutput(cmd, func(cmd *cobra.Command, args []string) (*output, error) {
		if keptFile == "" {
			return nil, usagef("--kept is missing: want a file of 'cage study keep'")
		}
		s, err := study.Load(args[0])
		if err != nil {
			return nil, err
		}
		file, err := snapshot.ReadFor(s, keptFile)
		if err != nil {
			return nil, err
		}
		here, err := runResults(cmd, s)
		if err != nil {
			return nil, err
		}
		a := report.Agree(s, file.Results(s), here)
		if a.Cells == 0 {
			return nil, fmt.Errorf("no cell is done both in %s and in %s: want at least one to compare",
				s.Out, keptFile)
		}
		if outside, unknown := a.Count(report.Outside), a.Count(report.Unknown); outside+unknown > 0 {
			err = fmt.Errorf("%d of %d values are outside the intervals of the file, and %d "+
				"values without an interval differ", outside, a.Values, unknown)
		}
		return &output{a, func(w io.Writer) { printAgreement(w, a, s, keptFile) }}, err
	})
}

func printAgreement(w io.Writer, a *report.Agreement, s *study.Study, keptFile string) {
	fmt.Fprintf(w, "%d cells of %s are done here and in %s; "+
		"%d of them have bitwise equal results.\n",
		a.Cells, s.Name, keptFile, a.Same)
	fmt.Fprintf(w, "%d of %d values in the tables are printed as in the file, "+
		"%d more are inside its intervals.\n",
		a.Values-len(a.Others), a.Values, a.Count(report.Inside))
	if len(a.Others) == 0 {
		return
	}
	fmt.Fprintln(w)
	rows := [][]string{{"table", "cell", "n", "file", "here", "interval"}}
	for _, d := range a.Others {
		title, labels := d.Table, []string{}
		if d.Difference {
			title += ", difference"
		}
		if d.Choice {
			title += ", choice"
		}
		for _, name := range s.AxisNames() {
			if label, ok := d.Labels[name]; ok {
				labels = append(labels, label)
			}
		}
		rows = append(rows, []string{title, strings.Join(labels, " · "), fmt.Sprint(d.N),
			d.Before, d.Again, string(d.Relation)})
	}
	table(w, rows)
}
