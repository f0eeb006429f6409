package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cage-qat/cage/host/study/bench"
)

func newBenchKernels() *cobra.Command {
	m, o := benchModel{}, bench.KernelOptions{}
	rate, predictions := 0.0, ""
	cmd := &cobra.Command{
		Use:   "kernels [RUN.toml]",
		Short: "Time each kernel of a training step on a GPU, alone",
		Long: `List the kernels that cage writes for a training step in bfloat16: those of the
quantizers and of the loss. On a GPU each distinct one is timed alone, beside what
reading and writing its inputs and outputs takes. On the CPU the list says which
kernels a GPU would have, and nothing is timed.

The sizes come from the flags, or from a run's TOML file, as for cage bench step.

calls    places in the program of the step that call the kernel; in a loop over
         micro-batches or chunks each is executed more often
bound    its bytes at --rate
times    what was measured, as a multiple of the bound`,
		Args: atMostOne("TOML file"),
	}
	flags := cmd.Flags()
	sets := m.runFlags(flags)
	flags.IntVar(&o.Rounds, "steps", 10, "runs to count")
	flags.Float64Var(&rate, "rate", 4000, "GB a second that the GPU reads and writes; 4000 is what good kernels reach on an H200")
	flags.StringVar(&predictions, "predicted", "", `JSON file with predictions: {"kernels": {KEY: {"seconds": [LOW, HIGH], "instructions": N, "registers": N}}}`)
	return withAnswer(cmd, func(cmd *cobra.Command, args []string) (*answer, error) {
		if o.Rounds < 1 || !(rate > 0) {
			return nil, usageError{fmt.Errorf("--steps %d, --rate %g: want positive numbers", o.Rounds, rate)}
		}
		cfg, err := m.config(args, *sets)
		if err != nil {
			return nil, err
		}
		if o.Predictions, err = readPredictions(predictions); err != nil {
			return nil, err
		}
		if o.Finder, o.Plugins, err = newFinder(cmd); err != nil {
			return nil, err
		}
		o.Rate = 1e9 * rate
		report, err := bench.Kernels(cmd.Context(), cfg, o)
		if err != nil {
			return nil, err
		}
		return &answer{report, func(w io.Writer) { printKernels(w, report) }}, nil
	})
}

// readPredictions reads what is known of kernels before they run, by their keys.
func readPredictions(path string) (map[string]bench.KernelPrediction, error) {
	if path == "" {
		return nil, nil
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var file struct {
		Kernels map[string]bench.KernelPrediction `json:"kernels"`
	}
	if err := json.Unmarshal(text, &file); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if file.Kernels == nil {
		return nil, errors.New(path + ": want an object with the key kernels")
	}
	return file.Kernels, nil
}

func printKernels(w io.Writer, r *bench.KernelReport) {
	fmt.Fprintf(w, "%s\n\n", r.Build)
	rows := [][]string{{"kernel", "inputs", "calls", "instances", "warps", "MB", "bound ms", "predicted ms", "instructions", "registers", "ms", "times"}}
	optional := func(format string, value float64) string {
		if value == 0 {
			return "-"
		}
		return fmt.Sprintf(format, value)
	}
	for _, k := range r.Kernels {
		predicted := "-"
		if len(k.Predicted) > 0 {
			var parts []string
			for _, s := range k.Predicted {
				parts = append(parts, fmt.Sprintf("%.3f", 1e3*s))
			}
			predicted = strings.Join(parts, "–")
		}
		rows = append(rows, []string{k.Name, strings.Join(k.Inputs, " "), fmt.Sprint(k.Calls), fmt.Sprint(k.Instances), fmt.Sprint(k.Warps), fmt.Sprintf("%.1f", float64(k.Bytes)/1e6),
			fmt.Sprintf("%.3f", 1e3*k.Bound), predicted, optional("%.0f", float64(k.Instructions)), optional("%.0f", float64(k.Registers)),
			optional("%.3f", 1e3*k.Seconds), optional("%.2f", k.TimesBound)})
	}
	table(w, rows)
}
