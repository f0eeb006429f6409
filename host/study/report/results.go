package report

import (
	"slices"

	"github.com/cage-qat/cage/host/study"
	"github.com/cage-qat/cage/host/train/metrics"
)

// Results returns the numbers in all tables, for JSON. Unknown numbers are omitted.
func (r *Report) Results() map[string]any {
	tables := []map[string]any{}
	for k := range r.Tables {
		t := &r.Tables[k]
		entries := []map[string]any{}
		for i, row := range t.Entries {
			for c, e := range row {
				if e.Expected > 0 {
					entry := e.results()
					for i, m := range t.Also {
						if x := e.Also[i]; x.N > 0 {
							entry[m] = metrics.Number(x.Mean)
						}
					}
					entry["labels"] = t.labels(i, c)
					entries = append(entries, entry)
				}
			}
		}
		table := map[string]any{
			"title": t.Title, "metric": t.Metric, "better": t.Better, "over": t.Over,
			"level": study.Level, "entries": entries,
		}
		if len(t.Baseline) > 0 {
			table["baseline"] = t.Baseline
		}
		if t.Best != nil {
			table["best"] = t.Best
		}
		if t.Conclusion != "" {
			table["conclusion"] = t.Conclusion
		}
		tables = append(tables, table)
	}
	out := map[string]any{"study": r.Name, "cells": r.Cells, "states": r.States, "tables": tables}
	if len(r.Unreadable) > 0 {
		out["unreadable"] = r.Unreadable
	}
	if len(r.Stale) > 0 {
		out["stale"] = r.Stale
	}
	return out
}

func (e Entry) results() map[string]any {
	out := map[string]any{"n": e.N, "expected": e.Expected}
	if e.N > 0 {
		out["mean"] = metrics.Number(e.Mean)
	}
	if e.N > 1 {
		out["sd"] = metrics.Number(e.SD)
	}
	if e.Mark != Plain {
		out["mark"] = e.Mark
	}
	if e.Choice != nil {
		out["choice"] = e.Choice
	}
	if d := e.Difference; d != nil {
		difference := map[string]any{"n": d.N, "mean": metrics.Number(d.Mean)}
		if d.N > 1 {
			difference["sd"] = metrics.Number(d.SD)
		}
		if d.N > 2 {
			difference["holm"] = metrics.Number(e.Holm)
			difference["low"], difference["high"] = metrics.Number(d.Low), metrics.Number(d.High)
		}
		if i := e.Items; i != nil {
			difference["items"] = map[string]any{"n": i.N, "low": metrics.Number(i.Low),
				"high": metrics.Number(i.High), "more": i.More, "less": i.Less, "p": metrics.Number(i.P)}
		}
		out["difference"] = difference
	}
	return out
}

func (t *Table) labels(row, column int) map[string]string {
	labels := slices.Concat(t.RowLabels[row], t.ColumnLabels[column])
	out := map[string]string{}
	for i, axis := range slices.Concat(t.Rows, t.Columns) {
		out[axis] = labels[i]
	}
	return out
}
