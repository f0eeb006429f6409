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
		Short: "Keep the results of a study in one small file",
		Long: `Write the numbers of all cells that are done into one small JSON file, with what they
were made with: builds, plugins, hashes of programs and of data, the revision of cage,
the date. The file can be committed when the runs are too large for it: 'cage study
run' and 'status' take it with --kept.

Results that stand in the file already stay there unless their cells were trained
again, so a study may be run on one machine after another. Stale ones are left out, and
so are kept ones of other tokens than those trained on now. Where the file has results of
cells that the study file does not name any more, --forget drops them.`,
		Args: exactly(1, "one study file"),
	}
	cmd.Flags().BoolVar(&forget, "forget", false,
		"drop results of cells that the study file does not name any more")
	cmd.Flags().StringVar(&out, "out", "",
		"`FILE` to write, or to add to (default: the study's name and .json)")
	return withAnswer(cmd, func(cmd *cobra.Command, args []string) (*answer, error) {
		s, results, err := loadResults(cmd, args[0])
		if err != nil {
			return nil, err
		}
		path := cmp.Or(out, s.Name+".json")
		file, err := snapshot.Update(path, s, results, forget, buildVersion(), time.Now().UTC())
		if err != nil {
			return nil, err
		}
		return textAnswer(map[string]any{"file": path, "cells": len(file.Cells)},
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
		Short: "Compare the results of a study with those that are kept",
		Long: `Compare what came out of a study here with what stands in a file of 'cage study keep':
whether results that were kept come out again, on another machine, with another build or
after a change of a plugin. Cells that are done in both places take part, the others do
not. It tells how many of them have the same numbers to the last bit, and lists the
means, differences and choices of the study's tables that would be written in another
way now, with the 95 % confidence interval of the kept one.

The exit code is 1 when one lies outside of that interval, or has none because there are
fewer than two replicates.`,
		Args: exactly(1, "one study file"),
	}
	cmd.Flags().StringVar(&keptFile, "kept", "",
		"`FILE` of 'cage study keep' to compare with (required)")
	return withAnswer(cmd, func(cmd *cobra.Command, args []string) (*answer, error) {
		if keptFile == "" {
			return nil, usagef("--kept is required: the file of kept results")
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
			return nil, fmt.Errorf("no cell is done both here, in %s, and in %s: there is nothing to "+
				"compare", s.Out, keptFile)
		}
		if outside, unknown := a.Count(report.Outside), a.Count(report.Unknown); outside+unknown > 0 {
			err = fmt.Errorf("%d of %d values lie outside their kept intervals, and %d without "+
				"a kept interval differ", outside, a.Values, unknown)
		}
		return &answer{a, func(w io.Writer) { printAgreement(w, a, s, keptFile) }}, err
	})
}

func printAgreement(w io.Writer, a *report.Agreement, s *study.Study, keptFile string) {
	fmt.Fprintf(w, "%d cells of %s are done both here and in %s; "+
		"%d of them have the same numbers to the last bit.\n",
		a.Cells, s.Name, keptFile, a.Same)
	fmt.Fprintf(w, "%d of %d values in their tables are printed as before, "+
		"%d more lie inside their kept intervals.\n",
		a.Values-len(a.Others), a.Values, a.Count(report.Inside))
	if len(a.Others) == 0 {
		return
	}
	fmt.Fprintln(w)
	rows := [][]string{{"table", "of", "n", "kept", "here", "interval"}}
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
