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
	"github.com/spf13/pflag"

	"github.com/cage-qat/cage/host/study/bench"
	"github.com/cage-qat/cage/host/train/build"
	"github.com/cage-qat/cage/host/train/config"
)

func newBench() *cobra.Command {
	return group(&cobra.Command{Use: "bench", Short: "Measure speed on this machine"},
		surviveSIGPIPE(newBenchStep()), surviveSIGPIPE(newBenchPeak()))
}

type benchModel struct {
	layers, width, heads, context, batch, vocab, bits int
	quantizer, optimizer, device, precision           string
	preset                                            string // "": the flags give the sizes
	given                                             func(flag string) bool
}

// runFlags adds the size flags to a command that also accepts a run's TOML file. It returns the
// overrides of that file's keys.
func (m *benchModel) runFlags(flags *pflag.FlagSet) (sets *[]string) {
	flags.IntVar(&m.layers, "layers", 4, "transformer blocks")
	flags.IntVar(&m.width, "width", 256, "width of the residual stream")
	flags.IntVar(&m.heads, "heads", 4, "attention heads")
	flags.IntVar(&m.context, "context", 256, "tokens per sequence")
	flags.IntVar(&m.batch, "batch", 8, "sequences per step")
	flags.IntVar(&m.vocab, "vocab", 256, "size of the vocabulary")
	flags.StringVar(&m.quantizer, "quantizer", "quest",
		"quantizer plugin of weights and activations, or none")
	flags.IntVar(&m.bits, "bits", 0, "bits of the quantizer; 0: its own default")
	flags.StringVar(&m.optimizer, "optimizer", "adamw", "optimizer plugin")
	flags.StringVar(&m.device, "device", "cpu", "device: cpu or cuda")
	flags.StringVar(&m.precision, "precision", "float32",
		"type of the model's matrix products: float32 or bfloat16")
	flags.StringVar(&m.preset, "preset", "", "a named size, such as 30M: its layers, width, heads, "+
		"context and vocabulary in place of those of the flags not given")
	m.given = flags.Changed
	return flags.StringArray("set", nil, "override a key of the TOML: KEY=VALUE (repeatable)")
}

func newBenchStep() *cobra.Command {
	m, o, profile := benchModel{}, bench.Options{}, ""
	cmd := &cobra.Command{
		Use:   "step [RUN.toml]",
		Short: "Time a training step: with and without CAGE",
		Long: `Time one training step of a language model on random tokens, without and with the CAGE
correction in turn. Ratios are taken round by round, so that other load on the machine
affects both alike.

The sizes come from the flags, or from a run's TOML file, as do device and precision.

In a profile (--cpuprofile) the label "executable" names the part of the step:
go tool pprof -tagfocus executable=gradient cage FILE`,
		Args: arguments(0, 1, "at most one TOML file"),
	}
	flags := cmd.Flags()
	sets := m.runFlags(flags)
	flags.IntVar(&o.Rounds, "steps", 12, "rounds to count, after a warm-up of a quarter as many")
	flags.StringVar(&profile, "cpuprofile", "", "write a CPU profile to `FILE`, for go tool pprof")
	flags.BoolVar(&o.ConfiguredOnly, "alone", false,
		"measure the configured step only, and print one line of JSON")
	return withAnswer(cmd, func(cmd *cobra.Command, args []string) (a *answer, err error) {
		cfg, err := m.config(args, *sets)
		if err != nil {
			return nil, err
		}
		if o.Rounds < 1 {
			return nil, usagef("--steps %d: at least 1", o.Rounds)
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
			value := map[string]any{
				"seconds": report.Seconds, "first_step_seconds": report.Steps[0].Compile, "batch": cfg.Train.Batch,
				"gflops": report.FLOPs / report.Seconds / 1e9, "flops": report.FLOPs,
				"peak_memory_bytes": report.PeakMemory,
			}
			line, err := json.Marshal(value)
			return textAnswer(value, "%s\n", line), err
		}
		return &answer{report, func(w io.Writer) { printBench(w, report) }}, nil
	})
}

// config reads the TOML file, or builds a configuration from the flags.
func (m benchModel) config(args, sets []string) (*config.Config, error) {
	if len(args) == 1 {
		cfg, err := config.Load(args[0], sets)
		if err == nil && cfg.Model.Language() && cfg.Model.Vocab == 0 && !cfg.Data.Separate() {
			return build.PinnedToData(cfg) // the data determine the vocabulary
		}
		return cfg, err
	}
	var text strings.Builder
	text.WriteString("[model]\n")
	if m.preset != "" {
		fmt.Fprintf(&text, "preset = %q\n", m.preset)
	}
	for _, size := range []struct {
		flag  string
		value int
	}{{"layers", m.layers}, {"width", m.width}, {"heads", m.heads}, {"context", m.context},
		{"vocab", m.vocab}} {
		if m.preset == "" || m.given(size.flag) {
			fmt.Fprintf(&text, "%s = %d\n", size.flag, size.value)
		}
	}
	fmt.Fprintf(&text, "[data]\ntrain = \"random\"\nvalidation = \"random\"\n")
	fmt.Fprintf(&text, "[train]\nsteps = 1000\nbatch = %d\naccumulate = 1\n", m.batch)
	fmt.Fprintf(&text, "[schedule]\nrate = 1e-3\n")
	fmt.Fprintf(&text, "[device]\nkind = %q\nprecision = %q\n", m.device, m.precision)
	fmt.Fprintf(&text, "[optimizer]\nplugin = %q\n", m.optimizer)
	fmt.Fprintf(&text, "[quantizer]\nplugin = %q\n", m.quantizer)
	if m.quantizer != "none" && m.bits > 0 {
		fmt.Fprintf(&text, "bits = %d\n", m.bits)
	}
	return config.Parse("flags", []byte(text.String()), sets)
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
