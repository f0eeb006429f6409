package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/cage-qat/cage/host/data/chat"
	"github.com/cage-qat/cage/host/deploy/export"
	"github.com/cage-qat/cage/host/deploy/posttrain"
	"github.com/cage-qat/cage/host/deploy/quantize"
	"github.com/cage-qat/cage/host/deploy/trained"
	"github.com/cage-qat/cage/host/model/architecture"
	"github.com/cage-qat/cage/host/train"
	"github.com/cage-qat/cage/host/train/config"
	"github.com/cage-qat/cage/host/train/metrics"
	"github.com/cage-qat/cage/host/train/rundir"
	"github.com/cage-qat/cage/internal/safetext"
	"github.com/cage-qat/cage/internal/vfs"
)

// Values of --weights.
const (
	weightsQuantized = "quantized"
	weightsLatent    = "latent"
)

// exportCommand holds the command line of cage export.
type exportCommand struct {
	export.Options
	to, out, weights, data string
	step                   int
	check                  bool
	argument               string // a run, or with --check a configuration
	run                    string // the run: the argument, or what is trained with it
}

func newExport() *cobra.Command {
	var e exportCommand
	cmd := &cobra.Command{
		Use:   "export RUN --to FORMAT --out DIR",
		Short: "Write a trained model in the format of another program",
		Long: `Write the newest checkpoint of a run directory in the format of another program:

  hf                  plain floats for transformers and everything that reads them
  compressed-tensors  packed weights for vLLM and transformers: int4, int8, mxfp4, nvfp4
  gguf                for llama.cpp: tq1_0, tq2_0, q1_0, q2_0, q4_0, q4_1, q5_0, q5_1,
                      q8_0, mxfp4, nvfp4, f16, bf16, f32
  mlx                 for mlx-lm on Apple computers: int2, int4, int8, mxfp4

The weights are the values Q(x) that training computed with, bit for bit. The files are
read back and compared. If the format cannot represent a weight exactly, export fails;
with --inexact it rounds the weight and reports the error. If quantized weights would be
stored as floats, as rotated weights are, export fails without --allow-floats. DIR must
not exist. It receives the weights, the tokenizer, a model card (README.md) and a report
(export.json). With --data, the losses of the run and of the files are printed.

With --check nothing is kept: the command says how the weights would be stored, or why
they cannot be. RUN may then be a file that has not been trained yet; one step of it is
trained in a temporary directory:

  cage export run.toml --to gguf --check`,
		Args: notNegative(exactly(1, "one run directory"), "step"),
	}
	e.addFlags(cmd.Flags())
	return withOutput(cmd, func(cmd *cobra.Command, args []string) (*output, error) {
		e.argument, e.run = args[0], args[0]
		if err := e.usage(); err != nil {
			return nil, err
		}
		e.Latent = e.weights == weightsLatent
		if e.check {
			temporary, err := os.MkdirTemp("", "cage-export-")
			if err != nil {
				return nil, err
			}
			defer os.RemoveAll(temporary)
			if err := e.prepareCheck(cmd, temporary); err != nil {
				return nil, err
			}
		}
		return e.write(cmd)
	})
}

func (e *exportCommand) addFlags(flags *pflag.FlagSet) {
	flags.StringVar(&e.to, "to", "", "`FORMAT`: "+strings.Join(export.Formats(), ", "))
	flags.StringVar(&e.out, "out", "", "`DIR` to create (required)")
	flags.StringVar(&e.Type, "type", "",
		"`TYPE` of quantized weights; default: the smallest exact one")
	flags.StringVar(&e.Float, "dtype", "f32",
		"type of all other weights: f32, bf16 or f16; with --to hf also of quantized weights")
	flags.StringVar(&e.Embedding, "embedding", "",
		"type of the embedding and the head with --to gguf: "+
			"f32, bf16, f16, or q8_0, which rounds them; default: that of --dtype")
	flags.StringVar(&e.weights, "weights", weightsQuantized,
		"quantized: Q(x); latent: x, the weights that the optimizer updates")
	flags.IntVar(&e.step, "step", 0, "export the checkpoint of this step instead of the newest")
	flags.BoolVar(&e.Inexact, "inexact", false,
		"round weights that the format cannot represent exactly")
	flags.BoolVar(&e.Floats, "allow-floats", false,
		"store quantized weights that the format cannot pack as floats, such as rotated ones")
	flags.StringVar(&e.data, "data", "",
		"print the losses of the run and of the export on the token file or chat file `FILE`")
	flags.BoolVar(&e.check, "check", false,
		"only say how the weights of RUN, or of a file to be trained, would be stored")
}

// usage returns an error if a flag is missing, has an unknown value or does not fit the others.
func (e *exportCommand) usage() error {
	switch {
	case !slices.Contains(export.Formats(), e.to):
		return usagef("--to %q: want one of %s", e.to, strings.Join(export.Formats(), ", "))
	case e.out == "" && !e.check:
		return usagef("--out is missing: want the directory to create")
	case e.out != "" && e.check:
		return usagef("--out and --check were given: want one of them")
	case e.data != "" && (e.check || e.to != "gguf" && e.to != "hf"):
		return usagef("--data computes losses of written files: want --to gguf or hf, without --check")
	case e.Embedding != "" && e.to != "gguf":
		return usagef("--embedding applies only to GGUF files: want --to gguf with it")
	case e.weights != weightsQuantized && e.weights != weightsLatent:
		return usagef("--weights %q: want %s or %s", e.weights, weightsQuantized, weightsLatent)
	}
	return nil
}

// prepareCheck sets out to a path in the temporary directory. If the argument is a configuration,
// it trains a step of it there.
func (e *exportCommand) prepareCheck(cmd *cobra.Command, temporary string) error {
	e.out = filepath.Join(temporary, "export")
	if filepath.Ext(e.argument) != ".toml" {
		return nil
	}
	e.run = filepath.Join(temporary, "run")
	return trainStep(cmd, e.argument, e.run)
}

// write writes the export, and computes losses if there is data.
func (e *exportCommand) write(cmd *cobra.Command) (*output, error) {
	source, err := trained.OpenSource(e.run, e.step, 0, newLogger(cmd))
	if err != nil {
		return nil, err
	}
	defer source.Close()
	losses, context := []float64(nil), 0
	if e.data != "" { // first, since the export takes longer to fail
		loss, of, err := lossOf(cmd, e.run, trained.Options{Source: source, Data: e.data})
		if err != nil {
			return nil, err
		}
		losses, context = append(losses, loss), of
	}
	model, err := openRun(cmd, e.run, trained.Options{Source: source, Export: true})
	if err != nil {
		return nil, err
	}
	defer model.Close()
	m, err := model.Export()
	if err != nil {
		return nil, err
	}
	m.Card.Version, m.Card.Command = buildVersion(), e.commandLine(cmd.Flags())
	report, err := export.Write(cmd.Context(), e.to, vfs.At(e.out), m, e.Options)
	if _, ok := errors.AsType[*export.WeightsError](err); ok && e.check {
		err = fmt.Errorf("%w\ndocs/guide/export.md#choose-before-training lists settings that can be "+
			"packed", err)
	}
	if err != nil {
		return nil, err
	}
	for _, w := range report.Warnings {
		newLogger(cmd).Warn(w)
	}
	if e.data != "" {
		loss, err := lossOfExport(cmd, e.out, e.data, context)
		if err != nil {
			return nil, fmt.Errorf("%s was written, but its loss could not be computed: %w",
				report.Path, err)
		}
		losses = append(losses, loss)
	}
	value := struct {
		*export.Report
		Losses []metrics.Number `json:"losses,omitempty"` // of the run and of the export
	}{report, metrics.List(losses)}
	return &output{value, func(w io.Writer) { e.print(w, model.Step(), report, losses) }}, nil
}

// commandLine returns the command with the flags that were given.
func (e *exportCommand) commandLine(flags *pflag.FlagSet) string {
	words := []string{"cage export", safetext.ShellWord(e.argument)}
	flags.Visit(func(f *pflag.Flag) {
		switch value := f.Value.String(); {
		case f.Value.Type() != "bool":
			words = append(words, "--"+f.Name, safetext.ShellWord(value))
		case value == "true":
			words = append(words, "--"+f.Name)
		}
	})
	return strings.Join(words, " ")
}

func (e *exportCommand) print(w io.Writer, step int, report *export.Report, losses []float64) {
	if e.check {
		fmt.Fprintf(w, "%s can be exported to %s:\n", e.argument, report.Format)
	} else {
		fmt.Fprintf(w, "%s, step %d, as %s in %s\n", e.run, step, report.Format, report.Path)
	}
	for _, line := range report.Summary() {
		fmt.Fprintln(w, "  "+line)
	}
	if losses != nil {
		fmt.Fprintf(w, "  loss on %s: %.6f of the run, %.6f of the export\n",
			e.data, losses[0], losses[1])
	}
}

// lossOf returns the loss of the model in dir on the data of o, and the model's context.
func lossOf(
	cmd *cobra.Command, dir string, o trained.Options,
) (loss float64, context int, err error) {
	model, err := openRun(cmd, dir, o)
	if err != nil {
		return 0, 0, err
	}
	defer model.Close()
	loss, _, err = model.Evaluate(cmd.Context(), 0)
	return loss, model.Config.Model.Context, err
}

// lossOfExport returns the loss of the Hugging Face checkpoint or the GGUF file in dir. Of a file,
// a run directory is made beside dir for as long as it is needed.
func lossOfExport(cmd *cobra.Command, dir, data string, context int) (loss float64, err error) {
	o := trained.Options{Data: data, AnyTokenizer: true} // the export's gives the same ids
	if trained.IsHub(dir) {
		o.Context = context
	} else {
		temporary, err := os.MkdirTemp(filepath.Dir(dir), "cage-export-")
		if err != nil {
			return 0, err
		}
		defer os.RemoveAll(temporary)
		file := filepath.Join(dir, "model.gguf")
		dir = filepath.Join(temporary, "run")
		if _, err := trained.Import(cmd.Context(), file, dir, context); err != nil {
			return 0, err
		}
	}
	loss, _, err = lossOf(cmd, dir, o)
	return loss, err
}

// trainStep trains the first step of the configuration at path, in a directory that it creates. All
// that training checks before is checked as for the whole run.
func trainStep(cmd *cobra.Command, path, dir string) error {
	cfg, err := config.Load(path, nil)
	if err != nil {
		return err
	}
	cfg.Train.Out = dir
	_, err = train.Run(cmd.Context(), cfg, train.Options{StopAfter: 1,
		EndOfTurn: chat.EndOfTurn})
	if errors.Is(err, train.ErrInterrupted) && cmd.Context().Err() == nil {
		return nil
	}
	return err
}

func newImport() *cobra.Command {
	var out string
	var context int
	cmd := &cobra.Command{
		Use:   "import CHECKPOINT|FILE.gguf [--out RUN]",
		Short: "Convert a Hugging Face checkpoint or a GGUF file to a run directory",
		Long: `Read the directory of a Hugging Face checkpoint (families: docs/guide/fine-tuning.md;
one or several safetensors files), or a GGUF file of such a model (tensors in F32, F16,
BF16, Q8_0, Q5_0, Q5_1, Q4_0, Q4_1, Q2_0, Q1_0, TQ1_0, TQ2_0, MXFP4, NVFP4), and print
the settings and the parameter that each tensor becomes. All problems are reported
at once.

With --out, write a run directory with the unchanged model, which can be evaluated,
sampled from and exported. Training can start from it, or from the checkpoint itself, with
model.init. Weights of a quantized GGUF file are rounded: their precision is lost. If
cage_torch.save wrote the checkpoint, the run has its quantized weights, for export.`,
		Args: notNegative(exactly(1, "one directory of a Hugging Face checkpoint, or a GGUF file"),
			"context"),
	}
	cmd.Flags().StringVar(&out, "out", "", "run directory to create; default: none")
	contextFlag(cmd, &context)
	parentPipeFlag(cmd)
	return withOutput(cmd, func(cmd *cobra.Command, args []string) (*output, error) {
		c, q, err := quantize.Import(cmd.Context(), args[0],
			quantize.Options{Out: out, Context: context})
		if run, _ := rundir.At(args[0]).Config().Exists(); run && errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("%s is already a run directory: want the directory of a Hugging Face "+
				"checkpoint", args[0])
		}
		if err != nil {
			return nil, err
		}
		model := map[string]any{}
		rows := [][]string{{args[0], c.Config.Architecture}}
		settings := c.Config.Settings
		for _, k := range settings.Keys() {
			if slices.Contains(shownKeys, k.Name) {
				model[k.Name] = k.Value()
				rows = append(rows, []string{"model." + k.Name, fmt.Sprint(k.Value())})
			}
		}
		parameters, tokens := architecture.CountParams(c.Params(), nil), c.Config.Tokens
		rows = append(rows, []string{"parameters", fmt.Sprint(parameters)},
			[]string{"max. positions", fmt.Sprint(c.Config.MaxPositions)},
			[]string{"BOS, EOS, padding", fmt.Sprint(tokens.Begin, tokens.End, tokens.Pad)})
		for _, warning := range c.Config.Warnings {
			rows = append(rows, []string{"warning", warning})
		}
		rows = append(rows, nil, []string{"tensor", "type", "shape", "parameter"})
		for _, a := range c.Report.Applied {
			rows = append(rows, []string{a.Tensor, string(a.Type), fmt.Sprint(a.Shape), a.Parameter})
		}
		for _, name := range c.Report.Ignored {
			rows = append(rows, []string{name, "", "", "ignored"})
		}
		var quantized []posttrain.Matrix
		if q != nil {
			quantized = q.Matrices
			rows = append(rows, nil, []string{"quantized", "", "shape", "‖W−Ŵ‖/‖W‖"})
		}
		for _, m := range quantized {
			rows = append(rows, []string{m.Name, "", fmt.Sprint(m.Shape), percent(m.WeightError)})
		}
		value := map[string]any{"checkpoint": args[0], "run": out, "model": model, "quantized": quantized,
			"architecture": c.Config.Architecture, "parameters": parameters, "tokens": tokens,
			"max_positions": c.Config.MaxPositions, "warnings": c.Config.Warnings,
			"tensors": c.Report}
		return &output{value, func(w io.Writer) {
			table(w, rows)
			if out != "" {
				fmt.Fprintf(w, "\nwrote this model to %[1]s: use it with cage eval --data FILE, "+
					"cage generate, or in training with model.init = %[1]q\n", out)
			}
		}}, nil
	})
}

// shownKeys lists the keys of [model] whose values are determined by a checkpoint.
var shownKeys = []string{"kind", "layers", "width", "heads", "kv_heads", "head_size", "hidden",
	"vocab", "head", "norm_eps", "rope_theta", "rope_pairs", "rope_factor", "rope_low", "rope_high",
	"rope_original", "rope_scaling", "window"}
