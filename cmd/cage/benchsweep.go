package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"

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
	return withAnswer(cmd, func(cmd *cobra.Command, _ []string) (a *answer, err error) {
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

func newBenchOverhead() *cobra.Command {
	m := benchModel{quantizer: "quest", optimizer: "adamw"}
	o := bench.Options{}
	var alone string
	cmd := &cobra.Command{
		Use:   "overhead",
		Short: "Time and memory of a step with and without CAGE, with and without rotation",
		Long: `Measure what CAGE adds to a QuEST training step of a Llama on random tokens: the
time of a step without and with the correction in turn, for quantizers without and
with a Hadamard rotation, and the peak memory of a process that runs each alone.`,
		Args: exactly(0, "no arguments"),
	}
	flags := cmd.Flags()
	m.sizeFlags(flags)
	flags.IntVar(&m.bits, "bits", 0, "bits of the quantizer; 0: its own default")
	flags.IntVar(&o.Rounds, "steps", 20, "rounds to count, after a warm-up of a quarter as many")
	// For the processes in which the memory of one variant is measured.
	flags.StringVar(&alone, "alone", "", "")
	_ = flags.MarkHidden("alone") // fails only where there is no such flag
	return withAnswer(cmd, func(cmd *cobra.Command, _ []string) (a *answer, err error) {
		if o.Rounds < 1 {
			return nil, usageError{fmt.Errorf("--steps %d: at least 1", o.Rounds)}
		}
		if o.Finder, o.Plugins, err = newFinder(cmd); err != nil {
			return nil, err
		}
		variants := bench.Variants()
		if alone != "" {
			i, err := strconv.Atoi(alone)
			if err != nil || i < 0 || i >= len(variants) {
				return nil, usageError{fmt.Errorf("--alone %q: want the number of a variant", alone)}
			}
			variants = variants[i : i+1]
		}
		report, err := bench.Overhead(cmd.Context(), m.variant, variants, o)
		if err == nil && alone == "" {
			err = addMemory(cmd.Context(), report)
		}
		if err != nil {
			return nil, err
		}
		return &answer{report, func(w io.Writer) { printOverhead(w, report) }}, nil
	})
}

// variant returns the configuration of a variant of the step.
func (m benchModel) variant(v bench.Variant) (*config.Config, error) {
	rotation := "auto"
	if !v.Rotation {
		rotation = "none"
	}
	return m.config(nil, []string{"quantizer.rotation=" + strconv.Quote(rotation)})
}

// addMemory measures the peak memory of each variant, in a process of its own that does a few steps.
func addMemory(ctx context.Context, report *bench.OverheadReport) error {
	for i, v := range bench.Variants() {
		args := append(slices.Clone(os.Args[1:]), "--alone", strconv.Itoa(i), "--json", "--steps", "4")
		text, err := ownOutput(ctx, args)
		if err != nil {
			return fmt.Errorf("memory of %s: %w", v, err)
		}
		var one bench.OverheadReport
		if err := json.Unmarshal(text, &one); err != nil {
			return fmt.Errorf("memory of %s: %w: unexpected output %.80q", v, err, text)
		}
		if len(one.Variants) != 1 {
			return fmt.Errorf("memory of %s: a process measured %d variants, want that one", v, len(one.Variants))
		}
		report.Variants[i].PeakMemory = one.Variants[0].PeakMemory
	}
	return nil
}

func printOverhead(w io.Writer, r *bench.OverheadReport) {
	fmt.Fprintf(w, "%s\n%d parameters, %d tokens per step\n\n", r.Build, r.Parameters, r.Tokens)
	rows := [][]string{{"step", "ms", "quartiles of the ratio", "ratio", "cpu ratio", "peak MiB"}}
	for _, t := range r.Variants {
		memory := "-"
		if t.PeakMemory > 0 {
			memory = fmt.Sprintf("%.0f", float64(t.PeakMemory)/(1<<20))
		}
		rows = append(rows, []string{
			t.Variant.String(), fmt.Sprintf("%.1f", 1e3*t.Seconds), fmt.Sprintf("%.3f–%.3f", t.Low, t.High),
			fmt.Sprintf("%.3f", t.Ratio), fmt.Sprintf("%.3f", t.CPURatio), memory,
		})
	}
	table(w, rows)
}

// dimension is one of the sizes whose growth is measured.
type dimension struct {
	name, flag, usage string
	sizes             []int
	set               func(m *benchModel, size int)
}

func dimensions() []dimension {
	return []dimension{
		{"width", "widths", "widths, with as many heads as give heads of the same size", []int{128, 256, 512},
			func(m *benchModel, n int) { m.heads, m.width = max(1, m.heads*n/m.width), n }},
		{"layers", "depths", "numbers of layers", []int{2, 4, 8}, func(m *benchModel, n int) { m.layers = n }},
		{"context", "contexts", "contexts", []int{128, 256, 512}, func(m *benchModel, n int) { m.context = n }},
		{"batch", "batches", "batches", []int{4, 8, 16}, func(m *benchModel, n int) { m.batch = n }},
	}
}

func newBenchScale() *cobra.Command {
	m := benchModel{}
	all := dimensions()
	var steps int
	cmd := &cobra.Command{
		Use:   "scale",
		Short: "How step time and memory grow with width, depth, context and batch",
		Long: `Time a training step of a Llama on random tokens at several sizes, one dimension at
a time with the others as given, and fit the exponents of step time, operations and
peak memory. Each size runs in a process of its own. Of --widths, --depths, --contexts
and --batches only those given are measured; without any, all of them.`,
		Args: exactly(0, "no arguments"),
	}
	flags := cmd.Flags()
	m.sizeFlags(flags)
	m.kindFlags(flags)
	for i, d := range all {
		flags.IntSliceVar(&all[i].sizes, d.flag, d.sizes, d.usage)
	}
	flags.IntVar(&steps, "steps", 6, "steps to count at each size")
	return withAnswer(cmd, func(cmd *cobra.Command, _ []string) (*answer, error) {
		if m.width < 1 || steps < 1 {
			return nil, usageError{fmt.Errorf("--width %d, --steps %d: at least 1 each", m.width, steps)}
		}
		chosen := slices.DeleteFunc(slices.Clone(all), func(d dimension) bool { return !flags.Changed(d.flag) })
		if len(chosen) == 0 {
			chosen = all
		}
		var report []bench.Growth
		for _, d := range chosen {
			g, err := bench.Scale(cmd.Context(), d.name, d.sizes, func(ctx context.Context, size int) (bench.Point, error) {
				at := m
				d.set(&at, size)
				return at.point(ctx, steps)
			})
			if err != nil {
				return nil, err
			}
			report = append(report, g)
		}
		return &answer{report, func(w io.Writer) { printGrowth(w, report) }}, nil
	})
}

// point measures the time and the memory of the step in a process of its own.
func (m benchModel) point(ctx context.Context, steps int) (p bench.Point, err error) {
	args := []string{"bench", "step", "--alone", "--steps", strconv.Itoa(steps), "--quantizer", m.quantizer, "--optimizer", m.optimizer,
		"--device", m.device, "--precision", m.precision}
	for _, size := range append(m.sizes(), benchSize{"batch", m.batch}, benchSize{"bits", m.bits}) {
		args = append(args, "--"+size.flag, strconv.Itoa(size.value))
	}
	text, err := ownOutput(ctx, args)
	if err != nil {
		return p, err
	}
	var said struct {
		Seconds float64 `json:"seconds"`
		FLOPs   float64 `json:"flops"`
		Peak    int64   `json:"peak_memory_bytes"`
	}
	err = json.Unmarshal(text, &said)
	return bench.Point{Seconds: said.Seconds, FLOPs: said.FLOPs, PeakMemory: said.Peak}, err
}

func printGrowth(w io.Writer, report []bench.Growth) {
	for i, g := range report {
		if i > 0 {
			fmt.Fprintln(w)
		}
		rows := [][]string{{g.Dimension, "step ms", "GFLOP/s", "peak MiB"}}
		for _, p := range g.Points {
			rows = append(rows, []string{
				strconv.Itoa(p.Size), fmt.Sprintf("%.1f", 1e3*p.Seconds), fmt.Sprintf("%.1f", p.FLOPs/p.Seconds/1e9),
				fmt.Sprintf("%.0f", float64(p.PeakMemory)/(1<<20)),
			})
		}
		table(w, rows)
		fmt.Fprintf(w, "time grows with the power %.2f (operations %.2f), memory %.2f\n", g.Time, g.FLOPs, g.Memory)
	}
}
