package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"runtime/pprof"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/cage-qat/cage/host/study/bench"
	"github.com/cage-qat/cage/host/study/bench/opprofile"
	"github.com/cage-qat/cage/host/train/build"
	"github.com/cage-qat/cage/host/train/config"
)

func newBench() *cobra.Command {
	return group(&cobra.Command{Use: "bench", Short: "Measure speed on this machine"},
		surviveSIGPIPE(newBenchStep()), surviveSIGPIPE(newBenchPeak()), surviveSIGPIPE(newBenchKernels()))
}

// benchModel are the sizes and plugins of the model whose step is measured, as the flags give them.
type benchModel struct {
	layers, width, heads, context, batch, vocab, bits int
	quantizer, optimizer, device, precision           string
	preset                                            string // "": the sizes are those of the flags
	given                                             func(flag string) bool
}

// sizeFlags adds the flags of the model's sizes.
func (m *benchModel) sizeFlags(flags *pflag.FlagSet) {
	flags.IntVar(&m.layers, "layers", 4, "transformer blocks")
	flags.IntVar(&m.width, "width", 256, "width of the residual stream")
	flags.IntVar(&m.heads, "heads", 4, "attention heads")
	flags.IntVar(&m.context, "context", 256, "tokens per sequence")
	flags.IntVar(&m.batch, "batch", 8, "sequences per step")
	flags.IntVar(&m.vocab, "vocab", 256, "size of the vocabulary")
}

// kindFlags adds the flags of the plugins.
func (m *benchModel) kindFlags(flags *pflag.FlagSet) {
	flags.StringVar(&m.quantizer, "quantizer", "quest", "quantizer plugin of weights and activations, or none")
	flags.IntVar(&m.bits, "bits", 0, "bits of the quantizer; 0: its own default")
	flags.StringVar(&m.optimizer, "optimizer", "adamw", "optimizer plugin")
	flags.StringVar(&m.device, "device", "cpu", "device: cpu or cuda")
	flags.StringVar(&m.precision, "precision", "float32", "type of the model's matrix products: float32 or bfloat16")
}

// runFlags adds the flags of a command that takes them or a run's TOML file. It returns the overrides of that file's keys.
func (m *benchModel) runFlags(flags *pflag.FlagSet) (sets *[]string) {
	m.sizeFlags(flags)
	m.kindFlags(flags)
	flags.StringVar(&m.preset, "preset", "", "a named size, as 30M: its layers, width, heads, context and vocabulary in place of those of the flags not given")
	m.given = flags.Changed
	return flags.StringArray("set", nil, "override a key of the TOML: KEY=VALUE (repeatable)")
}

// stepFlags are the flags of cage bench step.
type stepFlags struct {
	benchModel
	bench.Options
	sets          *[]string
	profile       string
	byKind, alone bool
}

func newBenchStep() *cobra.Command {
	f := stepFlags{}
	cmd := &cobra.Command{
		Use:   "step [RUN.toml]",
		Short: "Time a training step: with and without CAGE, with and without plugins",
		Long: `Time one training step of a Llama on random tokens, in turn: with the plugins'
programs, the same with the CAGE correction, and the same mathematics written
directly in the host. Ratios are taken round by round, so that other load on the
machine hits all alike. Also says how long the plugins took to start and to hand
over their programs.

The sizes come from the flags, or from a run's TOML file, as do device and precision.

--profile says where the processor time of a step goes, by kind of operation and by
plugin, and for products of matrices how many multiplications and additions one step
needs (GOP), how many a second of processor time computes, and what part that is of
the peak of the instructions, see cage bench peak.`,
		Args: atMostOne("TOML file"),
	}
	flags := cmd.Flags()
	f.sets = f.runFlags(flags)
	flags.StringVar((*string)(&f.Dispatch), "dispatch", "", "the step in several executables or in one: chain or single; empty: as the device needs it")
	flags.IntVar(&f.Rounds, "steps", 12, "rounds to count, after a warm-up of a quarter as many")
	flags.StringVar(&f.profile, "cpuprofile", "", "write a CPU profile for `go tool pprof` to this file")
	flags.BoolVar(&f.byKind, "profile", false, "name the processor time by kind of operation and by plugin")
	flags.BoolVar(&f.Direct, "direct", true, "also time the step written in the host (quest with adamw, 4 bits)")
	flags.BoolVar(&f.NoUpdate, "no-update", false, "also time the step without the arithmetic of its update: what optimizer and correction cost is the rest")
	flags.BoolVar(&f.alone, "alone", false, "measure the configured step only, and print one line of JSON")
	return withAnswer(cmd, f.run)
}

func (f *stepFlags) run(cmd *cobra.Command, args []string) (*answer, error) {
	cfg, err := f.config(args, *f.sets)
	if err != nil {
		return nil, err
	}
	if f.Rounds < 1 {
		return nil, usageError{fmt.Errorf("--steps %d: at least 1", f.Rounds)}
	}
	if f.byKind && (f.profile != "" || f.NoUpdate) {
		return nil, usageError{errors.New("--profile has a table of its own: leave --cpuprofile and --no-update out")}
	}
	f.Direct = f.Direct && (cmd.Flags().Changed("direct") || bench.HasDirect(cfg, f.bits))
	if f.Finder, f.Plugins, err = newFinder(cmd); err != nil {
		return nil, err
	}
	switch {
	case f.alone:
		return stepAlone(cmd.Context(), cfg, f.Options)
	case f.byKind:
		return profileStep(cmd.Context(), cfg, f.Options)
	}
	stop, err := startProfile(f.profile)
	if err != nil {
		return nil, err
	}
	report, err := bench.Run(cmd.Context(), cfg, f.Options)
	if err := errors.Join(err, stop()); err != nil {
		return nil, err
	}
	return &answer{report, func(w io.Writer) { printBench(w, report) }}, nil
}

// startProfile writes a CPU profile until the returned function is called; an empty
// path does nothing.
func startProfile(path string) (stop func() error, err error) {
	if path == "" {
		return func() error { return nil }, nil
	}
	f, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	if err := pprof.StartCPUProfile(f); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return func() error {
		pprof.StopCPUProfile()
		return f.Close()
	}, nil
}

// benchSize is a size of the model. Its flag and its key have the same name.
type benchSize struct {
	flag  string
	value int
}

func (m benchModel) sizes() []benchSize {
	return []benchSize{{"layers", m.layers}, {"width", m.width}, {"heads", m.heads}, {"context", m.context}, {"vocab", m.vocab}}
}

// config reads the TOML file, or makes one from the flags.
func (m benchModel) config(args, sets []string) (*config.Config, error) {
	if len(args) == 1 {
		cfg, err := config.Load(args[0], sets)
		if err == nil && cfg.Model.Language() && cfg.Model.Vocab == 0 && !cfg.Data.Separate() {
			return build.PinnedToData(cfg) // which has the vocabulary
		}
		return cfg, err
	}
	var text strings.Builder
	text.WriteString("[model]\n")
	if m.preset != "" {
		fmt.Fprintf(&text, "preset = %q\n", m.preset)
	}
	for _, size := range m.sizes() {
		if m.preset == "" || m.given(size.flag) {
			fmt.Fprintf(&text, "%s = %d\n", size.flag, size.value)
		}
	}
	fmt.Fprintf(&text, "[data]\ntrain = \"random\"\nvalidation = \"random\"\n")
	fmt.Fprintf(&text, "[train]\nsteps = 1000\nbatch = %d\naccumulate = 1\n[schedule]\nrate = 1e-3\n", m.batch)
	if m.device != "" {
		fmt.Fprintf(&text, "[device]\nkind = %q\nprecision = %q\n", m.device, m.precision)
	}
	fmt.Fprintf(&text, "[optimizer]\nplugin = %q\n[quantizer]\nplugin = %q\n", m.optimizer, m.quantizer)
	if m.quantizer != "none" && m.bits > 0 {
		fmt.Fprintf(&text, "bits = %d\n", m.bits)
	}
	return config.Parse("flags", []byte(text.String()), sets)
}

func printBench(w io.Writer, r *bench.Report) {
	fmt.Fprintf(w, "%s\n%d parameters, %d tokens and %.1f GFLOP per step, peak memory %.0f MiB\n",
		r.Build, r.Parameters, r.Tokens, r.FLOPs/1e9, float64(r.PeakMemory)/(1<<20))
	fmt.Fprintf(w, "plugins started in %.0f ms, handed over their programs in %.0f ms; a large matrix product runs at %.0f GFLOP/s\n\n", 1e3*r.PluginStart, 1e3*r.PluginHandover, r.PeakFLOPS/1e9)
	rows := [][]string{{"step", "ms", "tokens/s", "GFLOP/s", "of peak", "ratio", "quartiles", "cpu ratio", "first step ms"}}
	for _, t := range r.Steps {
		rows = append(rows, []string{
			t.Name, fmt.Sprintf("%.1f", 1e3*t.Seconds), fmt.Sprintf("%.0f", float64(r.Tokens)/t.Seconds),
			fmt.Sprintf("%.1f", r.FLOPs/t.Seconds/1e9), fmt.Sprintf("%.0f %%", 100*r.FLOPs/t.Seconds/r.PeakFLOPS), fmt.Sprintf("%.3f", t.Ratio),
			fmt.Sprintf("%.3f–%.3f", t.Low, t.High), fmt.Sprintf("%.3f", t.CPURatio), fmt.Sprintf("%.0f", 1e3*t.Compile),
		})
	}
	table(w, rows)
}

// stepAlone measures the configured step and prints one line.
func stepAlone(ctx context.Context, cfg *config.Config, o bench.Options) (*answer, error) {
	o.Direct, o.Only = false, bench.Configured(cfg)
	r, err := bench.Run(ctx, cfg, o)
	if err != nil {
		return nil, err
	}
	value := map[string]any{
		"seconds": r.Seconds, "first_step_unix": r.FirstStepUnix,
		"first_step_seconds": r.Steps[0].Compile, "batch": cfg.Train.Batch,
		"gflops": r.FLOPs / r.Seconds / 1e9, "flops": r.FLOPs, "peak_memory_bytes": r.PeakMemory, "choices": r.Choices,
	}
	line, err := json.Marshal(value)
	return textAnswer(value, "%s\n", line), err
}

// profileStep says where the time of a step goes.
func profileStep(ctx context.Context, cfg *config.Config, o bench.Options) (*answer, error) {
	p, err := bench.ProfileStep(ctx, cfg, o)
	if err != nil {
		return nil, err
	}
	return &answer{p, func(w io.Writer) {
		fmt.Fprintf(w, "%s\nprocessor time of a step, mean of %d\n\n", p.Build, p.Steps)
		table(w, withPeaks(shares("kind of operation", p.Kinds), p.Products))
		printPeaks(w, p)
		table(w, shares("part", p.Parts))
	}}, nil
}

// shares makes the rows of a table of times, each with its share of their sum.
func shares(title string, list []opprofile.Row) [][]string {
	total := 0.0
	for _, r := range list {
		total += r.Seconds
	}
	rows := [][]string{{title, "ms", "share"}}
	for _, r := range list {
		rows = append(rows, []string{r.Kind, fmt.Sprintf("%.1f", 1e3*r.Seconds), fmt.Sprintf("%.1f %%", 100*r.Seconds/total)})
	}
	return rows
}

// withPeaks adds columns to the table of kinds for those that multiply matrices.
func withPeaks(rows [][]string, products []bench.Reached) [][]string {
	if len(products) == 0 {
		return rows
	}
	rows[0] = append(rows[0], "GOP", "GOP/s", "of peak")
	for i, row := range rows[1:] {
		for _, r := range products {
			if r.Kind == row[0] {
				all := 0.0
				for _, n := range r.Operations {
					all += n
				}
				rows[1+i] = append(row, fmt.Sprintf("%.2f", all/1e9), fmt.Sprintf("%.1f", r.Rate/1e9), shareOf(r.Share))
			}
		}
	}
	return rows
}

// printPeaks says what was counted, and what the peaks are.
func printPeaks(w io.Writer, p *bench.Profile) {
	fmt.Fprintln(w)
	if len(p.Products) == 0 {
		return
	}
	fmt.Fprintln(w, "GOP: multiplications and additions of the products that one step computed, rotations and repeated forward passes among them")
	for _, r := range p.Products {
		for _, name := range slices.Sorted(maps.Keys(r.Operations)) {
			speed := "of unknown peak"
			if p.Peaks[name] > 0 {
				speed = fmt.Sprintf("at most %.1f GOP/s on one thread", p.Peaks[name]/1e9)
			}
			fmt.Fprintf(w, "%s: %.2f GOP by %s, %s\n", r.Kind, r.Operations[name]/1e9, cmp.Or(name, "plain code"), speed)
		}
	}
	fmt.Fprintln(w)
}
