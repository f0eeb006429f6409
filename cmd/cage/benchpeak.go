package main

import (
	"cmp"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/cage-qat/cage/host/study/bench"
)

func newBenchPeak() *cobra.Command {
	o := bench.PeakOptions{}
	cmd := &cobra.Command{
		Use:   "peak",
		Short: "Measure peaks of this processor, and what products reach of them",
		Long: `Measure the peak of each instruction with which products of matrices are computed on
this processor, and what part of the peaks the products reach: on one thread, and on as
many as Go uses (GOMAXPROCS).

Everything is timed in turn, --runs times for --time each after a run that warms up,
and the fastest run counts: other load on the machine only makes runs slower. --json
has the medians, too. On a machine that is busy with something else, or changes its
clock, a share may still be wrong, and even exceed 100 %.

instruction  groups of independent instructions that read no memory: GOP/s are
             billions of multiplications and additions per second (GFLOP/s, where
             the numbers are floats). Where a product needs two instructions, both
             are executed, and the multiplications and additions of the product count.
product      square matrices, and the products of models' layers: x·Wᵀ of a
             feed-forward layer, the gradients of its input (dy·W) and of its weight
             (dyᵀ·x), and scores (q·kᵀ) and values (p·v) of attention, for sequences
             of 256 and heads of 64.
size         M×N×K of matrices M×K and K×N, and how many of them in a batch.
numbers      float32, bfloat16 and integers of 8 bits, from float32 and int8 in memory,
             with rounding and packing; 4-bit and 8-bit are such integers up to 7 and
             127
GOP/s        2·M·N·K for each product of the batch, in a second
of peak      that, as a part of the peak of the instruction that multiplies, on as
             many threads`,
		Args: exactly(0, "no arguments"),
	}
	flags := cmd.Flags()
	flags.IntVar(&o.Runs, "runs", 20, "runs of each measurement that count")
	flags.DurationVar(&o.Time, "time", 5*time.Millisecond, "least duration of a run")
	flags.IntSliceVar(&o.Squares, "squares", []int{128, 256, 512, 1024, 2048},
		"sizes of square matrices")
	flags.IntSliceVar(&o.Widths, "widths", []int{128, 256, 512}, "widths of models")
	flags.IntVar(&o.Tokens, "tokens", 2048, "tokens in a step of the models")
	return withAnswer(cmd, func(cmd *cobra.Command, _ []string) (*answer, error) {
		if err := o.Check(); err != nil {
			return nil, usageError{err}
		}
		report, err := bench.Peaks(cmd.Context(), o)
		if err != nil {
			return nil, err
		}
		return &answer{report, func(w io.Writer) { printPeak(w, report, o) }}, nil
	})
}

func printPeak(w io.Writer, r *bench.PeakReport, o bench.PeakOptions) {
	fmt.Fprintf(w, "%s kernels=%s\nfastest of %d runs of %v\n\n", r.Build, r.Kernels, o.Runs, o.Time)
	named := func(title, unit string, list []bench.InstructionRates) {
		rows := [][]string{{title}}
		for _, n := range r.Threads {
			rows[0] = append(rows[0], onThreads(unit, n))
		}
		for _, n := range list {
			row := []string{n.Name}
			for _, rate := range n.Rates {
				row = append(row, fmt.Sprintf("%.1f", rate.Best/1e9))
			}
			rows = append(rows, row)
		}
		table(w, rows)
		fmt.Fprintln(w)
	}
	named("instruction", "GOP/s", r.Instructions)
	rows := [][]string{{"product", "size", "numbers", "instruction"}}
	for _, n := range r.Threads {
		rows[0] = append(rows[0], onThreads("GOP/s", n), "of peak")
	}
	for _, p := range r.Products {
		size := fmt.Sprintf("%d×%d×%d", p.M, p.N, p.K)
		if p.Batch > 1 {
			size = fmt.Sprintf("%d of %s", p.Batch, size)
		}
		row := []string{p.Name, size, p.Numbers, cmp.Or(p.Instruction, "-")}
		for _, rate := range p.Rates {
			row = append(row, fmt.Sprintf("%.1f", rate.Best/1e9), shareOf(rate.Share))
		}
		rows = append(rows, row)
	}
	table(w, rows)
}

func onThreads(unit string, n int) string {
	if n == 1 {
		return unit + ", 1 thread"
	}
	return fmt.Sprintf("%s, %d threads", unit, n)
}

// shareOf formats a fraction of the peak; 0 means that the peak is unknown.
func shareOf(share float64) string {
	if share == 0 {
		return "-"
	}
	return fmt.Sprintf("%.0f %%", 100*share)
}
