package main

import (
	"cmp"
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/cage-qat/cage/host/study"
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
