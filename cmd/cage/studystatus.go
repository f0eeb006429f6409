package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cage-qat/cage/host/study"
	"github.com/cage-qat/cage/host/train/metrics"
)

// cellListing is a cell as printed in JSON.
type cellListing struct {
	ID      string                    `json:"id"`
	Labels  map[string]string         `json:"labels"`
	Dir     string                    `json:"dir"`
	State   study.State               `json:"state,omitempty"`
	Error   string                    `json:"error,omitempty"`
	Set     []study.Setting           `json:"set,omitempty"`
	Summary map[string]metrics.Number `json:"summary,omitempty"`
}

func newStudyStatus() *cobra.Command {
	var keptFile string
	cmd := &cobra.Command{
		Use:   "status FILE",
		Short: "Show how far each cell of a study is",
		Long: `Show how far each cell of a study is: done, running, interrupted, failed (with its
error), missing, or stale: made by a plugin or of data that has changed since. It may
be asked at any time, also while the study runs. With --kept it is the results in a
file of 'cage study keep' that are shown, and which of them are stale.`,
		Args: exactly(1, "one study file"),
	}
	cmd.Flags().StringVar(&keptFile, "kept", "", "`FILE` of kept results to show in place of the runs")
	return answering(cmd, func(cmd *cobra.Command, args []string) (*answer, error) {
		s, err := study.Load(args[0])
		if err != nil {
			return nil, err
		}
		var results []study.Result
		if keptFile != "" {
			results, err = keptResults(cmd, s, keptFile)
		} else {
			results, err = compared(cmd, s)
		}
		if err != nil {
			return nil, err
		}
		list, rows := []cellListing{}, [][]string{append(s.AxisNames(), "state", "val loss", "error or directory")}
		for _, r := range results {
			cell := cellListing{ID: r.Cell.ID, Labels: r.Cell.Labels, Dir: r.Cell.Dir, State: r.State, Error: r.Err, Set: r.Cell.Set, Summary: map[string]metrics.Number{}}
			for name, x := range r.Summary {
				cell.Summary[name] = metrics.Number(x)
			}
			list = append(list, cell)
			rows = append(rows, append(r.Cell.Of(s.AxisNames()), statusOf(r, keptFile)...))
		}
		total := study.Count(results)
		return &answer{map[string]any{"study": s.Name, "out": s.Out, "counts": total, "cells": list}, func(w io.Writer) {
			table(w, rows)
			fmt.Fprint(w, counts(s, total))
		}}, nil
	})
}

// statusOf is what is printed of a cell: its state, its loss, and its error or where it is.
func statusOf(r study.Result, keptFile string) []string {
	loss, last := "–", r.Cell.Dir
	if x, ok := r.Summary["val_loss"]; ok {
		loss = number(metrics.Some(x), "%.4f")
	}
	switch {
	case r.Err != "":
		last = strings.ReplaceAll(r.Err, "\n", "; ")
	case keptFile != "" && r.Known():
		last = "kept in " + keptFile
	}
	return []string{string(r.State), loss, last}
}
