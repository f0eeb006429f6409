package main

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/cage-qat/cage/host/study/report"
	"github.com/cage-qat/cage/internal/vfs"
)

func newStudyReport() *cobra.Command {
	var out string
	cmd := &cobra.Command{
		Use:   "report FILE...",
		Short: "Write tables, figures and a page of the results",
		Long: `Write the tables and figures of a study file for the cells that are done: means and
standard deviations over replicates, and paired differences to the baseline with 95 %
confidence intervals, in Markdown and LaTeX; figures as SVG, PNG and PDF; and a page with
all of them, index.html, which needs no network.

Equal results give equal bytes: a report contains no times, speeds or paths. Runs with a
damaged file, and stale runs, whose plugins, data or models have changed since, are left
out and named, and the exit code is 1.`,
		Args: atLeastOne("study file"),
	}
	cmd.Flags().StringVar(&out, "out", "",
		"`DIR` to write to (default: report, in the study's directory)")
	return withOutput(cmd, func(cmd *cobra.Command, args []string) (*output, error) {
		if out != "" && len(args) > 1 {
			return nil, usagef("--out %s: want a single study with it, got %d", out, len(args))
		}
		var values []map[string]any
		var leftOut error
		for _, file := range args {
			s, results, err := loadResults(cmd, file)
			if err != nil {
				return nil, err
			}
			r, err := report.New(s, s.Needed(results))
			if err != nil {
				return nil, err
			}
			to := report.Dir(s.Out)
			if out != "" {
				to = vfs.At(out)
			}
			dir := to.Name
			files, err := r.Save(to)
			if err != nil {
				return nil, err
			}
			value := r.Results()
			value["dir"], value["files"] = dir, files
			values = append(values, value)
			leftOut = errors.Join(leftOut, leftOutError(r))
			if !wantsJSON(cmd) {
				printReport(cmd.OutOrStdout(), dir, r)
			}
		}
		if len(values) == 1 {
			return textOutput(values[0], ""), leftOut
		}
		return textOutput(values, ""), leftOut
	})
}

// leftOutError returns an error that names the damaged and stale runs left out of the report, or
// nil if there are none.
func leftOutError(r *report.Report) error {
	var errs []error
	add := func(what string, list []report.OmittedRun) {
		for _, d := range list {
			what += fmt.Sprintf("\n  %s: %s", d.Run, d.Err)
		}
		if len(list) > 0 {
			errs = append(errs, errors.New(what))
		}
	}
	add("damaged runs are not in the report; 'cage study run --retry' trains them again, or "+
		"once their directories are deleted:", r.Unreadable)
	add("stale runs are not in the report; 'cage study run' trains them again:", r.Stale)
	return errors.Join(errs...)
}

func printReport(w io.Writer, dir string, r *report.Report) {
	fmt.Fprintln(w, r.Progress())
	for i := range r.Tables {
		for _, g := range r.Tables[i].Grids() {
			fmt.Fprintf(w, "\n%s\n", g.Title)
			table(w, g.Text())
			fmt.Fprintln(w, g.TextNotes())
		}
	}
	fmt.Fprintf(w, "\n%s\n", filepath.Join(dir, report.PageFile))
}
