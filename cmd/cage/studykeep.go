package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/cage-qat/cage/host/study"
	"github.com/cage-qat/cage/host/study/kept"
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
	cmd.Flags().BoolVar(&forget, "forget", false, "drop results of cells that the study file does not name any more")
	cmd.Flags().StringVar(&out, "out", "", "`FILE` to write, or to add to (default: the study's name and .json)")
	return answering(cmd, func(cmd *cobra.Command, args []string) (*answer, error) {
		s, err := study.Load(args[0])
		if err != nil {
			return nil, err
		}
		return keepResults(cmd, s, cmp.Or(out, s.Name+".json"), forget)
	})
}

// keepResults writes the file path; forget drops results that the study does not name any more.
func keepResults(cmd *cobra.Command, s *study.Study, path string, forget bool) (*answer, error) {
	results, err := compared(cmd, s)
	if err != nil {
		return nil, err
	}
	file, err := kept.Update(path, s, results, forget, buildVersion(), time.Now().UTC())
	if err != nil {
		return nil, err
	}
	return inWords(map[string]any{"file": path, "cells": len(file.Cells)}, "%s: %d of %d cells\n", path, len(file.Cells), study.Count(results).Cells), nil
}

// keptResults are those of a file of kept results, stale ones marked.
func keptResults(cmd *cobra.Command, s *study.Study, path string) ([]study.Result, error) {
	file, err := kept.ReadFor(s, path)
	if err != nil {
		return nil, err
	}
	results := file.Results(s)
	return results, findStale(cmd, s, func(ctx context.Context, look study.Survey) error {
		return file.FindStale(ctx, s, results, look)
	})
}

// keptIDs tells of each cell, by its ID, whether it needs no training because its results are kept and not stale; nil where none
// are asked for.
type keptIDs map[string]bool

func (k keptIDs) has(c study.Cell) bool { return k[c.ID] }

// say says how many cells are left out.
func (k keptIDs) say(w io.Writer, file string) {
	if k == nil {
		return
	}
	count := 0
	for _, kept := range k {
		if kept {
			count++
		}
	}
	fmt.Fprintf(w, "%d of %d cells are kept in %s and not trained again\n", count, len(k), file)
}

// keptCells reads which cells are kept; nil without a file.
func keptCells(cmd *cobra.Command, s *study.Study, path string) (keptIDs, error) {
	if path == "" {
		return nil, nil
	}
	results, err := keptResults(cmd, s, path)
	if err != nil {
		return nil, err
	}
	kept := keptIDs{}
	for _, r := range results {
		kept[r.Cell.ID] = r.Known()
	}
	return kept, nil
}
