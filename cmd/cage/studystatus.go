package main

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/cage-qat/cage/host/metrics"
	"github.com/cage-qat/cage/host/study"
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
	cmd := &cobra.Command{
		Use:   "status FILE",
		Short: "Show how far each cell of a study is",
		Long: `Show how far each cell of a study is: done, running, interrupted, failed (with its
error), missing, or stale: made by a plugin or of data that has changed since. It may
be asked at any time, also while the study runs.`,
		Args: exactly(1, "one study file"),
	}
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		s, err := study.Load(args[0])
		if err != nil {
			return err
		}
		results, err := compared(cmd, s)
		if err != nil {
			return err
		}
		if *asJSON {
			return printStatusJSON(cmd, s, results)
		}
		rows := [][]string{append(s.AxisNames(), "state", "val loss", "error or directory")}
		for _, r := range results {
			loss, last := "–", r.Cell.Dir
			if x, ok := r.Summary["val_loss"]; ok {
				loss = number(metrics.Some(x), "%.4f")
			}
			if r.Err != "" {
				last = strings.ReplaceAll(r.Err, "\n", "; ")
			}
			rows = append(rows, append(r.Cell.Of(s.AxisNames()), string(r.State), loss, last))
		}
		if err := table(cmd.OutOrStdout(), rows); err != nil {
			return err
		}
		return printCounts(cmd.OutOrStdout(), s, study.Count(results))
	}
	return cmd
}

func printStatusJSON(cmd *cobra.Command, s *study.Study, results []study.Result) error {
	list := []cellListing{}
	for _, r := range results {
		cell := cellListing{ID: r.Cell.ID, Labels: r.Cell.Labels, Dir: r.Cell.Dir, State: r.State, Error: r.Err, Set: r.Cell.Set}
		for name, x := range r.Summary {
			if cell.Summary == nil {
				cell.Summary = map[string]metrics.Number{}
			}
			cell.Summary[name] = metrics.Number(x)
		}
		list = append(list, cell)
	}
	return printJSON(cmd, map[string]any{"study": s.Name, "out": s.Out, "counts": study.Count(results), "cells": list})
}
