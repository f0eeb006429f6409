package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"github.com/cage-qat/cage/host/study/figure"
	"github.com/cage-qat/cage/host/train/metrics"
	"github.com/cage-qat/cage/host/train/rundir"
)

func newPlot() *cobra.Command {
	var out []string
	var title string
	var from int
	cmd := &cobra.Command{
		Use:   "plot RUN...",
		Short: "Draw loss, λ_t and quantization error of runs",
		Long: `Draw the curves of one or several runs: training and validation loss, the
quantization error and λ_t over the steps. The ending of each --out chooses PNG or
SVG; without --out both are written into the first run directory.`,
		Args: atLeastOne("run directory"),
	}
	cmd.Flags().StringArrayVar(&out, "out", nil, "`FILE` to write, .png, .svg or .pdf (repeatable)")
	cmd.Flags().StringVar(&title, "title", "", "title above the figure")
	cmd.Flags().IntVar(&from, "from", 0, "draw what came from this `STEP` on: the end of a run in detail")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		runs, err := readRuns(args)
		if err != nil {
			return err
		}
		for i := range runs {
			runs[i].Records = slices.DeleteFunc(runs[i].Records, func(r metrics.Record) bool { return r.Step < from })
		}
		if len(out) == 0 {
			out = []string{filepath.Join(args[0], "curves.png"), filepath.Join(args[0], "curves.svg")}
		}
		return savePicture(cmd.OutOrStdout(), out, &figure.Curves{Runs: runs}, title)
	}
	return cmd
}

// savePicture writes a picture to files, and the file names to w.
func savePicture(w io.Writer, paths []string, p figure.Picture, title string) error {
	for _, path := range paths {
		err := figure.Save(path, p, figure.Options{Title: title})
		if err != nil {
			return err
		}
		fmt.Fprintln(w, path)
	}
	return nil
}

func readRuns(dirs []string) ([]figure.Run, error) {
	var runs []figure.Run
	names := rundir.Names(dirs)
	for i, dir := range dirs {
		records, err := metrics.Read[metrics.Record](rundir.At(dir).Metrics())
		if err != nil {
			return nil, explainUnreadable(dir, "it has no metrics", err)
		}
		runs = append(runs, figure.Run{Name: names[i], Records: records})
	}
	return runs, nil
}

// explainUnreadable explains why a file of a run directory could not be read. absent is the
// explanation if only the file is missing.
func explainUnreadable(dir, absent string, err error) error {
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if _, statErr := os.Stat(dir); statErr != nil {
		return fmt.Errorf("there is no run directory %s", dir)
	}
	return fmt.Errorf("%s: %s", dir, absent)
}

func newCompare() *cobra.Command {
	var out []string
	cmd := &cobra.Command{
		Use:   "compare RUN...",
		Short: "Print the results of runs side by side",
		Long: `Print the results of runs side by side: the final validation loss and perplexity,
the relative quantization error of the weights, and the speed of training. A run
that was interrupted shows – for what it has not measured.`,
		Args: atLeastOne("run directory"),
	}
	cmd.Flags().StringArrayVar(&out, "out", nil, "also draw the curves of all runs to `FILE`, .png, .svg or .pdf (repeatable)")
	return withAnswer(cmd, func(cmd *cobra.Command, args []string) (*answer, error) {
		var list []metrics.Summary
		rows := [][]string{{"run", "steps", "val loss", "val ppl", "‖e‖/‖x‖", "tokens/s", "minutes"}}
		names := rundir.Names(args)
		for i, dir := range args {
			s, err := metrics.ReadSummary(rundir.At(dir).Summary())
			if err != nil {
				return nil, explainUnreadable(dir, "its training has not ended yet", err)
			}
			list = append(list, s)
			errorRel := "–" // ‖x − Q(x)‖ / ‖x‖, whose square is recorded
			if s.ErrorRel != nil {
				errorRel = fmt.Sprintf("%.2f%%", 100*math.Sqrt(float64(*s.ErrorRel)))
			}
			rows = append(rows, []string{
				names[i], fmt.Sprint(s.Steps), number(s.ValLoss, "%.4f"), number(s.ValPPL, "%.3f"),
				errorRel, number(s.TokensPerSecond, "%.0f"), fmt.Sprintf("%.1f", float64(s.Seconds)/60),
			})
		}
		if len(out) > 0 {
			runs, err := readRuns(args)
			if err != nil {
				return nil, err
			}
			if err := savePicture(io.Discard, out, &figure.Curves{Runs: runs}, ""); err != nil {
				return nil, err
			}
		}
		return tableAnswer(list, rows), nil
	})
}

// number formats a value; nil, which means not measured, becomes –.
func number(n *metrics.Number, format string) string {
	if n == nil {
		return "–"
	}
	return fmt.Sprintf(format, float64(*n))
}
