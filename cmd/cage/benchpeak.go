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
		Short: "Measure the peak speed of this processor and of matrix products",
		Long: `Measure the peak speed of each instruction that matrix products use on this processor,
and the fraction of it that the products reach, on one thread and on GOMAXPROCS threads.

After a warm-up, each measurement is run --runs times for at least --time. The fastest
run counts, because other load only makes runs slower; --json also has the medians. If
the machine is busy or changes its clock, a fraction can be wrong, and even exceed 100 %.

instruction  independent instructions that read no memory, in billions of additions and
             multiplications per second (GOP/s). If a product needs two instructions,
             both are executed, and the operations of the product count.
product      square matrices, and the products of a model's layers: x·Wᵀ of a
             feed-forward layer, the gradients of its input (dy·W) and of its weight
             (dyᵀ·x), and q·kᵀ and p·v of attention, for sequences of 256 tokens and
             heads of 64.
size         M×N×K for an M×K matrix times a K×N matrix, and the size of the batch
numbers      float32, bfloat16 or 8-bit integers, computed from float32 or int8 in
             memory, including rounding and packing; 4-bit means 8-bit integers up to 7
GOP/s        2·M·N·K operations for each product of the batch, per second
of peak      GOP/s relative to the peak of the instruction on as many threads`,
		Args: exactly(0, "no arguments"),
	}
	flags := cmd.Flags()
	flags.IntVar(&o.Runs, "runs", 20, "runs of each measurement after the warm-up")
	flags.DurationVar(&o.Time, "time", 5*time.Millisecond, "minimum duration of a run")
	flags.IntSliceVar(&o.Squares, "squares", []int{128, 256, 512, 1024, 2048},
		"sizes of square matrices")
	flags.IntSliceVar(&o.Widths, "widths", []int{128, 256, 512}, "widths of the models")
	flags.IntVar(&o.Tokens, "tokens", 2048, "tokens per step of the models")
	return withOutput(cmd, func(cmd *cobra.Command, _ []string) (*output, error) {
		if err := o.Check(); err != nil {
			return nil, usageError{err}
		}
		report, err := bench.Peaks(cmd.Context(), o)
		if err != nil {
			return nil, err
		}
		return &output{report, func(w io.Writer) { printPeak(w, report, o) }}, nil
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

// shareOf formats a fraction of the peak. A share of 0 means that the peak is unknown.
func shareOf(share float64) string {
	if share == 0 {
		return "-"
	}
	return fmt.Sprintf("%.0f %%", 100*share)
}
