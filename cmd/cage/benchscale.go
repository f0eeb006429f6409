package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/cage-qat/cage/host/study/bench"
)

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
	return answering(cmd, func(cmd *cobra.Command, _ []string) (*answer, error) {
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

// point measures the step in a process of its own.
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
