package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/cage-qat/cage/host/bench"
)

func newBenchScale() *cobra.Command {
	m := benchModel{}
	var widths, layers, contexts, batches []int
	var steps int
	cmd := &cobra.Command{
		Use:   "scale",
		Short: "How step time and memory grow with width, depth, context and batch",
		Long: `Time a training step of a Llama on random tokens at several sizes, one dimension at
a time with the others as given, and fit the exponents of step time, operations and
peak memory. Each size runs in a process of its own.`,
		Args: exactly(0, "no arguments"),
	}
	asJSON := jsonFlag(cmd)
	flags := cmd.Flags()
	m.sizeFlags(flags)
	flags.StringVar(&m.quantizer, "quantizer", "quest", "quantizer plugin of weights and activations, or none")
	flags.IntVar(&m.bits, "bits", 4, "bits of the quantizer")
	flags.StringVar(&m.optimizer, "optimizer", "adamw", "optimizer plugin")
	flags.IntSliceVar(&widths, "widths", []int{128, 256, 512}, "widths, with as many heads as give heads of the same size")
	flags.IntSliceVar(&layers, "depths", []int{2, 4, 8}, "numbers of layers")
	flags.IntSliceVar(&contexts, "contexts", []int{128, 256, 512}, "contexts")
	flags.IntSliceVar(&batches, "batches", []int{4, 8, 16}, "batches")
	flags.IntVar(&steps, "steps", 6, "steps to count at each size")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		dimensions := []struct {
			name  string
			sizes []int
			set   func(m *benchModel, size int)
		}{
			{"width", widths, func(m *benchModel, n int) { m.heads, m.width = max(1, m.heads*n/m.width), n }},
			{"layers", layers, func(m *benchModel, n int) { m.layers = n }},
			{"context", contexts, func(m *benchModel, n int) { m.context = n }},
			{"batch", batches, func(m *benchModel, n int) { m.batch = n }},
		}
		var report []bench.Growth
		for _, d := range dimensions {
			if len(d.sizes) == 0 {
				continue
			}
			if len(d.sizes) < 2 {
				return usageError{fmt.Errorf("%s: one size shows no growth, want at least two (or none)", d.name)}
			}
			g, err := bench.Scale(cmd.Context(), d.name, d.sizes, func(ctx context.Context, size int) (bench.Point, error) {
				at := m
				d.set(&at, size)
				return at.point(ctx, steps)
			})
			if err != nil {
				return err
			}
			report = append(report, g)
		}
		if *asJSON {
			return printJSON(cmd, report)
		}
		return printGrowth(cmd.OutOrStdout(), report)
	}
	return cmd
}

// point measures the step in a process of its own.
func (m benchModel) point(ctx context.Context, steps int) (bench.Point, error) {
	self, err := os.Executable()
	if err != nil {
		return bench.Point{}, err
	}
	args := []string{"bench", "step", "--alone", "--steps", strconv.Itoa(steps), "--quantizer", m.quantizer, "--optimizer", m.optimizer}
	for _, size := range []struct {
		flag  string
		value int
	}{{"layers", m.layers}, {"width", m.width}, {"heads", m.heads}, {"context", m.context}, {"batch", m.batch}, {"vocab", m.vocab}, {"bits", m.bits}} {
		args = append(args, "--"+size.flag, strconv.Itoa(size.value))
	}
	child := exec.CommandContext(ctx, self, args...)
	var stderr bytes.Buffer
	child.Stderr = &stderr
	text, err := child.Output()
	if err != nil {
		return bench.Point{}, fmt.Errorf("%w: %s", err, bytes.TrimSpace(stderr.Bytes()))
	}
	var said struct {
		Seconds float64 `json:"seconds"`
		FLOPs   float64 `json:"flops"`
		Peak    int64   `json:"peak_memory_bytes"`
	}
	err = json.Unmarshal(text, &said)
	return bench.Point{Seconds: said.Seconds, FLOPs: said.FLOPs, PeakMemory: said.Peak}, err
}

func printGrowth(w io.Writer, report []bench.Growth) error {
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
		if err := table(w, rows); err != nil {
			return err
		}
		fmt.Fprintf(w, "time grows with the power %.2f (operations %.2f), memory %.2f\n", g.Time, g.FLOPs, g.Memory)
	}
	return nil
}
