package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/cage-qat/cage/host/study/bench"
	"github.com/cage-qat/cage/host/train/config"
)

func newBenchMatrix() *cobra.Command {
	m := benchModel{}
	o := bench.Options{}
	var quantizers, optimizers []string
	cmd := &cobra.Command{
		Use:   "matrix",
		Short: "Time a training step with each quantizer and each optimizer",
		Long: `Time one training step of a Llama on random tokens: every quantizer with the first
optimizer, relative to none, and every optimizer with the quantizer of --base,
relative to the first. All run in turn, step by step. Means are printed, as the steps
that refresh preconditioners take longer than the others.`,
		Args: exactly(0, "no arguments"),
	}
	flags := cmd.Flags()
	m.sizeFlags(flags)
	flags.StringSliceVar(&quantizers, "quantizers", []string{"none", "absmax", "quest", "mxfp4", "nvfp4", "lsq"}, "quantizers, the reference first")
	flags.StringSliceVar(&optimizers, "optimizers", []string{"adamw", "sgd", "muon", "shampoo", "soap"}, "optimizers, the reference first")
	flags.StringVar(&m.quantizer, "base", "quest", "quantizer with which optimizers are compared, or none")
	flags.StringVar((*string)(&o.Stacking), "stacking", "", "updates of tensors that are alike: side-by-side or together; empty: as the device needs it")
	flags.IntVar(&o.Rounds, "steps", 20, "rounds to count, after a warm-up of a quarter as many")
	return answering(cmd, func(cmd *cobra.Command, _ []string) (a *answer, err error) {
		if len(quantizers) == 0 || len(optimizers) == 0 || o.Rounds < 1 {
			return nil, usageError{fmt.Errorf("--quantizers, --optimizers and --steps: at least one each")}
		}
		if o.Finder, o.Plugins, err = newFinder(cmd); err != nil {
			return nil, err
		}
		configure := func(p bench.Pair) (*config.Config, error) {
			m := m
			m.quantizer, m.optimizer = p.Quantizer, p.Optimizer
			return m.config(nil, nil)
		}
		report, err := bench.Matrix(cmd.Context(), configure, quantizers, optimizers, m.quantizer, o)
		if err != nil {
			return nil, err
		}
		return &answer{report, func(w io.Writer) { printMatrix(w, report) }}, nil
	})
}

func printMatrix(w io.Writer, r *bench.MatrixReport) {
	fmt.Fprintf(w, "%s\n%d parameters, %d tokens per step\n", r.Build, r.Parameters, r.Tokens)
	for _, part := range []struct {
		title string
		list  []bench.PairTiming
	}{{"quantizer", r.Quantizers}, {"optimizer", r.Optimizers}} {
		rows := [][]string{{part.title, "with", "mean ms", "overhead", "median ms", "cpu ratio"}}
		for _, t := range part.list {
			name, with := t.Quantizer, t.Optimizer
			if part.title == "optimizer" {
				name, with = with, name
			}
			rows = append(rows, []string{
				name, with, fmt.Sprintf("%.1f", 1e3*t.Mean), fmt.Sprintf("%+.1f %%", 100*(t.MeanRatio-1)),
				fmt.Sprintf("%.1f", 1e3*t.Seconds), fmt.Sprintf("%.3f", t.CPURatio),
			})
		}
		fmt.Fprintln(w)
		table(w, rows)
	}
}
