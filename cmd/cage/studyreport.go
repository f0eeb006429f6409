package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cage-qat/cage/host/study/report"
	"github.com/cage-qat/cage/internal/vfs"
)

func newStudyReport() *cobra.Command {
	var out string
	cmd := &cobra.Command{
		Use:   "report FILE...",
		Short: "Write tables, figures and a page of what is done",
		Long: `Write the tables and figures that a study file asks for, of the cells that are done
by now: means and standard deviations over replicates, paired differences to the
baseline with their 95 % confidence interval, in Markdown and LaTeX; figures as SVG,
PNG and PDF; and index.html, one page with all of it that needs no network.

The same results make the same bytes: there is no time, speed or path in a report.
A run with a damaged file is left out and named, and so is one that is stale, made by
a plugin or of data that has changed since; the exit code is 1 then.`,
		Args: atLeastOne("study file"),
	}
	cmd.Flags().StringVar(&out, "out", "",
		"`DIR` to write into (default: report, in the study's directory)")
	return withAnswer(cmd, func(cmd *cobra.Command, args []string) (*answer, error) {
		if out != "" && len(args) > 1 {
			return nil, usagef("--out %s is one directory, for one study, not %d", out, len(args))
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
			dir := cmp.Or(out, report.Dir(s.Out))
			files, err := r.Save(vfs.At(dir))
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
			return textAnswer(values[0], ""), leftOut
		}
		return textAnswer(values, ""), leftOut
	})
}

// leftOutError returns an error that names the runs which a report leaves out because they are
// damaged or stale; nil if there are none.
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
	const run = "trained again by 'cage study run'"
	add("left out of the report, and "+run+" when the directory is deleted:", r.Unreadable)
	add("left out of the report as stale, and "+run+":", r.Stale)
	return errors.Join(errs...)
}

func printReport(w io.Writer, dir string, r *report.Report) {
	fmt.Fprintln(w, r.Progress())
	for i := range r.Tables {
		t := &r.Tables[i]
		fmt.Fprintf(w, "\n%s\n", t.Title)
		table(w, t.Text())
		fmt.Fprintln(w, strings.Join(t.TextNotes(), " "))
	}
	fmt.Fprintf(w, "\n%s\n", filepath.Join(dir, report.PageFile))
}
