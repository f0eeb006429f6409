package main

import (
	"errors"
	"fmt"
	"io/fs"
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
		Long: `Draw training and validation loss, quantization error and λ_t of one or several runs
over the steps. The extension of each --out selects PNG, SVG or PDF. Without --out, PNG
and SVG are written to the first run directory.`,
		Args: atLeastOne("run directory"),
	}
	cmd.Flags().StringArrayVar(&out, "out", nil, "`FILE` to write (.png, .svg or .pdf; repeatable)")
	cmd.Flags().StringVar(&title, "title", "", "title of the figure")
	cmd.Flags().IntVar(&from, "from", 0, "first `STEP` to draw")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		runs, err := readRuns(args)
		if err != nil {
			return err
		}
		for i := range runs {
			early := func(r metrics.Record) bool { return r.Step < from }
			runs[i].Records = slices.DeleteFunc(runs[i].Records, early)
		}
		if len(out) == 0 {
			out = []string{filepath.Join(args[0], "curves.png"), filepath.Join(args[0], "curves.svg")}
		}
		for _, path := range out {
			options := figure.Options{Title: title}
			if err := figure.Save(path, &figure.Curves{Runs: runs}, options); err != nil {
				return err
			}
			fmt.Fprintln(cmd.OutOrStdout(), path)
		}
		return nil
	}
	return cmd
}

func readRuns(dirs []string) ([]figure.Run, error) {
	var runs []figure.Run
	names := rundir.Names(dirs)
	for i, dir := range dirs {
		records, err := metrics.Read[metrics.Record](rundir.At(dir).Metrics())
		switch _, missing := os.Stat(dir); {
		case errors.Is(err, fs.ErrNotExist) && missing != nil:
			return nil, fmt.Errorf("there is no run directory %s", dir)
		case errors.Is(err, fs.ErrNotExist):
			return nil, fmt.Errorf("%s has no metrics", dir)
		case err != nil:
			return nil, err
		}
		runs = append(runs, figure.Run{Name: names[i], Records: records})
	}
	return runs, nil
}
