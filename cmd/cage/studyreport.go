package main

import (
	"fmt"
	"io"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/cage-qat/cage/host/study"
	"github.com/cage-qat/cage/host/study/report"
)

func newStudyReport() *cobra.Command {
	var out string
	cmd := &cobra.Command{
		Use:   "report FILE",
		Short: "Write tables, figures and a page of what is done",
		Long: `Write the tables and figures that a study file asks for, of the cells that are done
by now: means and standard deviations over replicates, paired differences to the
baseline with their 95 % confidence interval, in Markdown, CSV and LaTeX; figures as
SVG and PNG; and index.html, one page with all of it that needs no network.

The same results make the same bytes: there is no time, speed or path in a report.`,
		Args: exactly(1, "one study file"),
	}
	asJSON := jsonFlag(cmd)
	cmd.Flags().StringVar(&out, "out", "", "`DIR` to write into (default: report, in the study's directory)")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		s, err := study.Load(args[0])
		if err != nil {
			return err
		}
		r, err := report.Build(s)
		if err != nil {
			return err
		}
		if out == "" {
			out = report.Dir(s.Out)
		}
		files, err := r.Save(out)
		if err != nil {
			return err
		}
		if *asJSON {
			return printJSON(cmd, struct {
				Dir   string   `json:"dir"`
				Files []string `json:"files"`
				report.Results
			}{out, files, r.Results()})
		}
		return printReport(cmd.OutOrStdout(), r, out)
	}
	return cmd
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
