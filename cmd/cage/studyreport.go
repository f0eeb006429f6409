package main

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cage-qat/cage/host/study"
	"github.com/cage-qat/cage/host/study/report"
	"github.com/cage-qat/cage/internal/atomicfile"
	"github.com/cage-qat/cage/internal/vfs"
)

func newStudyReport() *cobra.Command {
	var out, contents string
	cmd := &cobra.Command{
		Use:   "report FILE...",
		Short: "Write tables, figures and a page of what is done",
		Long: `Write the tables and figures that a study file asks for, of the cells that are done
by now: means and standard deviations over replicates, paired differences to the
baseline with their 95 % confidence interval, in Markdown, CSV and LaTeX; figures as
SVG and PNG; and index.html, one page with all of it that needs no network.

The same results make the same bytes: there is no time, speed or path in a report.
A run with a damaged file is left out and named, and so is one that is stale, made by
a plugin or of data that has changed since; the exit code is 1 then.

--contents also writes one page with the tables of all studies named, which leads to
the page of each.`,
		Args: atLeastOne("study file"),
	}
	asJSON := jsonFlag(cmd)
	cmd.Flags().StringVar(&out, "out", "", "`DIR` to write into (default: report, in the study's directory)")
	cmd.Flags().StringVar(&contents, "contents", "", "`FILE` for a page that leads to the reports")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if out != "" && len(args) > 1 {
			return usageError{fmt.Errorf("--out %s is one directory, for one study, not %d", out, len(args))}
		}
		var done []written
		for _, file := range args {
			w, err := writeReport(cmd, file, out)
			if err != nil {
				return err
			}
			done = append(done, w)
			if !*asJSON {
				if err := printReport(cmd.OutOrStdout(), w.report, w.Dir); err != nil {
					return err
				}
			}
		}
		if contents != "" {
			if err := writeContents(contents, done); err != nil {
				return err
			}
			if !*asJSON {
				fmt.Fprintln(cmd.OutOrStdout(), contents)
			}
		}
		var err error
		switch {
		case *asJSON && len(done) == 1:
			err = printJSON(cmd, done[0])
		case *asJSON:
			err = printJSON(cmd, done)
		}
		return errors.Join(err, leftOut(done))
	}
	return cmd
}

// leftOut is the error of reports without some of the runs that were trained.
func leftOut(done []written) error {
	var lines, stale []string
	for _, w := range done {
		for _, d := range w.Damages {
			lines = append(lines, fmt.Sprintf("%s: %s", d.Run, d.Err))
		}
		for _, d := range w.Stale {
			stale = append(stale, fmt.Sprintf("%s: %s", d.Run, d.Err))
		}
	}
	var errs []error
	if len(lines) > 0 {
		errs = append(errs, fmt.Errorf("left out of the report, and trained again by 'cage study run' when the directory is deleted:\n  %s", strings.Join(lines, "\n  ")))
	}
	if len(stale) > 0 {
		errs = append(errs, fmt.Errorf("left out of the report as stale, and trained again by 'cage study run':\n  %s", strings.Join(stale, "\n  ")))
	}
	return errors.Join(errs...)
}

// written is a report that has been written.
type written struct {
	Dir   string   `json:"dir"`
	Files []string `json:"files"`
	report.Results
	report *report.Report
}

func writeReport(cmd *cobra.Command, file, out string) (written, error) {
	s, err := study.Load(file)
	if err != nil {
		return written{}, err
	}
	results, err := compared(cmd, s)
	if err != nil {
		return written{}, err
	}
	r, err := report.Of(s, results)
	if err != nil {
		return written{}, err
	}
	if out == "" {
		out = report.Dir(s.Out)
	}
	files, err := r.Save(vfs.At(out))
	return written{out, files, r.Results(), r}, err
}

// writeContents writes the page that leads to several reports.
func writeContents(path string, done []written) error {
	var reports []*report.Report
	var dirs []string
	for _, w := range done {
		reports, dirs = append(reports, w.report), append(dirs, w.Dir)
	}
	html, err := report.Contents("Studies", reports, dirs, filepath.Dir(path))
	if err != nil {
		return err
	}
	if err := vfs.At(path).Dir().MkdirAll(); err != nil {
		return err
	}
	return atomicfile.WriteBytes(vfs.At(path), html)
}

// printReport prints the tables, and where everything is.
func printReport(w io.Writer, r *report.Report, dir string) error {
	fmt.Fprintln(w, r.Progress())
	for i := range r.Tables {
		fmt.Fprintf(w, "\n%s\n", r.Tables[i].Title)
		if err := table(w, r.Tables[i].Text()); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintf(w, "\n%s\n", filepath.Join(dir, report.PageFile))
	return err
}
