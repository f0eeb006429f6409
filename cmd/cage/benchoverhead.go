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
	hide(flags, "alone")
	return answering(cmd, func(cmd *cobra.Command, _ []string) (a *answer, err error) {
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

// variant is the configuration of a variant of the step.
func (m benchModel) variant(v bench.Variant) (*config.Config, error) {
	rotation := "auto"
	if !v.Rotation {
		rotation = "none"
	}
	return m.config(nil, []string{"quantizer.rotation=" + strconv.Quote(rotation)})
}

// addMemory runs a few steps of each variant in a process of its own.
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
