package main

import (
	"cmp"
	"time"

	"github.com/spf13/cobra"

	"github.com/cage-qat/cage/host/study"
	"github.com/cage-qat/cage/host/study/snapshot"
	"github.com/cage-qat/cage/internal/vfs"
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
		if out == "" { // the user did not name it
			if err := vfs.At(".").Join(path).CheckLinks(); err != nil {
				return nil, err
			}
		}
		file, err := snapshot.Update(path, s, results, forget, buildVersion(), time.Now().UTC())
		if err != nil {
			return nil, err
		}
		return textOutput(map[string]any{"file": path, "cells": len(file.Cells)},
			"%s: %d of %d cells\n", path, len(file.Cells), study.Count(results).Cells), nil
	})
}
