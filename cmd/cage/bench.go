package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/pprof"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cage-qat/cage/host/study/bench"
	"github.com/cage-qat/cage/host/train/build"
	"github.com/cage-qat/cage/host/train/config"
)

func newBench() *cobra.Command {
	return group(&cobra.Command{Use: "bench", Short: "Measure speed on this machine"},
		surviveSIGPIPE(newBenchStep()))
}

// benchSizes holds the sizes of the benchmark model. They do not apply if --set gives a preset.
const benchSizes = "model = {layers = 4, width = 256, heads = 4, context = 256, vocab = 256}\n"

// benchRun holds the other settings of the benchmark.
const benchRun = `data = {train = "random", validation = "random"}
train = {steps = 1000, batch = 8, accumulate = 1}
schedule = {rate = 1e-3}
device = {kind = "cpu", precision = "float32"}
optimizer = {plugin = "adamw"}
quantizer = {plugin = "quest"}
`

func newBenchStep() *cobra.Command {
	o, profile := bench.Options{}, ""
	cmd := &cobra.Command{
		Use:   "step [RUN.toml]",
		Short: "Time a training step with and without CAGE",
		Long: `Time one training step of a language model on random tokens, without and with the CAGE
correction in turn. Ratios are taken round by round, so that other load on the machine
affects both alike.

The settings are those of a run's TOML file or, without one, a small Llama with AdamW and
QuEST. --set changes them:

  cage bench step --set model.layers=6 --set model.width=512 --set train.batch=4
  cage bench step --set 'model.preset="30M"' --set 'device.precision="bfloat16"'

In a profile (--cpuprofile) the label "executable" names the part of the step:
go tool pprof -tagfocus executable=gradient cage FILE`,
		Args: arguments(0, 1, "at most one TOML file"),
	}
	flags := cmd.Flags()
	sets := flags.StringArray("set", nil, "override a key of the TOML: `KEY=VALUE` (repeatable)")
	flags.IntVar(&o.Rounds, "steps", 12, "rounds to measure, after a warm-up of a quarter as many")
	flags.StringVar(&profile, "cpuprofile", "", "write a CPU profile to `FILE`, for go tool pprof")
	flags.BoolVar(&o.ConfiguredOnly, "alone", false,
		"measure the configured step only, and print one line of JSON")
	return withOutput(cmd, func(cmd *cobra.Command, args []string) (a *output, err error) {
		cfg, err := benchConfig(args, *sets)
		if err != nil {
			return nil, err
		}
		if o.Rounds < 1 {
			return nil, usagef("--steps %d: want 1 or more", o.Rounds)
		}
		if o.Finder, o.Plugins, err = newFinder(cmd); err != nil {
			return nil, err
		}
		if profile != "" {
			f, failed := os.Create(profile)
			if failed != nil {
				return nil, failed
			}
			defer func() { err = errors.Join(err, f.Close()) }()
			if err := pprof.StartCPUProfile(f); err != nil {
				return nil, err
			}
			defer pprof.StopCPUProfile()
		}
		report, err := bench.Run(cmd.Context(), cfg, o)
		if err != nil {
			return nil, err
		}
		if o.ConfiguredOnly {
			value := map[string]any{"seconds": report.Seconds, "batch": cfg.Train.Batch,
				"first_step_seconds": report.Steps[0].Compile,
				"gflops":             report.FLOPs / report.Seconds / 1e9, "flops": report.FLOPs,
				"peak_memory_bytes": report.PeakMemory}
			line, err := json.Marshal(value)
			return textOutput(value, "%s\n", line), err
		}
		return &output{report, func(w io.Writer) { printBench(w, report) }}, nil
	})
}

// benchConfig loads args[0], a TOML file, or the default configuration if there are no arguments.
func benchConfig(args, sets []string) (*config.Config, error) {
	if len(args) == 0 {
		text := benchSizes + benchRun
		for _, set := range sets {
			if strings.HasPrefix(set, "model.preset") {
				text = benchRun
			}
		}
		return config.Parse("cage bench step", []byte(text), sets)
	}
	return loadWithVocabulary(args[0], sets)
}

// loadWithVocabulary loads a run's TOML file. If it has no vocabulary, that is found in the data.
func loadWithVocabulary(file string, sets []string) (*config.Config, error) {
	cfg, err := config.Load(file, sets)
	if err == nil && cfg.Model.Language() && cfg.Model.Vocab == 0 && !cfg.Data.Separate() {
		return build.PinnedToData(cfg)
	}
	return cfg, err
}

func printBench(w io.Writer, r *bench.Report) {
	fmt.Fprintf(w, "%s\n%d parameters, %d tokens and %.1f GFLOP per step, peak memory %.0f MiB\n\n",
		r.Build, r.Parameters, r.Tokens, r.FLOPs/1e9, float64(r.PeakMemory)/(1<<20))
	rows := [][]string{{"step", "ms", "tokens/s", "GFLOP/s", "ratio", "quartiles",
		"cpu ratio", "first step ms"}}
	for _, t := range r.Steps {
		flops := r.FLOPs / t.Seconds
		rows = append(rows, []string{t.Name, fmt.Sprintf("%.1f", 1e3*t.Seconds),
			fmt.Sprintf("%.0f", float64(r.Tokens)/t.Seconds), fmt.Sprintf("%.1f", flops/1e9),
			fmt.Sprintf("%.3f", t.Ratio),
			fmt.Sprintf("%.3f–%.3f", t.Low, t.High), fmt.Sprintf("%.3f", t.CPURatio),
			fmt.Sprintf("%.0f", 1e3*t.Compile)})
	}
	table(w, rows)
}
