package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/cage-qat/cage/host/deploy/export"
	"github.com/cage-qat/cage/host/deploy/trained"
	"github.com/cage-qat/cage/host/model/architecture"
	"github.com/cage-qat/cage/host/train/rundir"
	"github.com/cage-qat/cage/internal/vfs"
)

// The values of --weights.
const (
	weightsQuantized = "quantized"
	weightsLatent    = "latent"
)

func newExport() *cobra.Command {
	var to, out, weights string
	var step int
	var o export.Options
	cmd := &cobra.Command{
		Use:   "export RUN --to FORMAT --out DIR",
		Short: "Write a trained model in the format of another program",
		Long: `Write the newest checkpoint of a run directory in the format of another program:

  hf                  plain floats for transformers and everything that reads them
  compressed-tensors  packed weights for vLLM and transformers: int4, int8, mxfp4, nvfp4
  gguf                for llama.cpp: q4_0, q4_1, q8_0, mxfp4, f16, bf16, f32

The weights are those that training computed with, Q(x), bit for bit. What was written is
read back and compared. A weight that the format cannot hold exactly is refused with the
reason; --inexact stores what comes near, and says how near. A quantized weight that
would leave as floats, as rotated ones do, is refused without --allow-floats. DIR must
not exist. It gets the weights, the tokenizer, a model card (README.md) and a report
(export.json).`,
		Args: notNegative(exactly(1, "one run directory"), "step"),
	}
	flags := cmd.Flags()
	flags.StringVar(&to, "to", "", "`FORMAT`: "+strings.Join(export.Formats(), ", "))
	flags.StringVar(&out, "out", "", "`DIR`ectory to make")
	flags.StringVar(&o.Type, "type", "",
		"`TYPE` of quantized weights; default: the smallest that is exact")
	flags.StringVar(&o.Float, "dtype", "f32",
		"type of all other weights: f32, bf16 or f16; with --to hf of quantized ones too")
	flags.StringVar(&weights, "weights", weightsQuantized,
		"quantized: Q(x); latent: x, which the optimizer updates")
	flags.IntVar(&step, "step", 0, "export the checkpoint of this step instead of the newest")
	flags.BoolVar(&o.Inexact, "inexact", false,
		"round what the format cannot represent exactly")
	flags.BoolVar(&o.Floats, "allow-floats", false,
		"store quantized weights that the format cannot pack as floats, such as rotated ones")
	return withAnswer(cmd, func(cmd *cobra.Command, args []string) (*answer, error) {
		switch {
		case !slices.Contains(export.Formats(), to):
			return nil, usagef("--to %q: want one of %s", to, strings.Join(export.Formats(), ", "))
		case out == "":
			return nil, usagef("--out is missing: want the directory to make")
		case weights != weightsQuantized && weights != weightsLatent:
			return nil, usagef("--weights %q: want %s or %s",
				weights, weightsQuantized, weightsLatent)
		}
		o.Latent = weights == weightsLatent
		model, err := openRun(cmd, args[0], trained.Options{Step: step, Export: true})
		if err != nil {
			return nil, err
		}
		defer model.Close()
		m, err := model.Export()
		if err != nil {
			return nil, err
		}
		words := []string{"cage export", args[0]}
		flags.Visit(func(f *pflag.Flag) {
			if words = append(words, "--"+f.Name); f.Value.Type() != "bool" {
				words = append(words, f.Value.String())
			}
		})
		m.Card.Version, m.Card.Command = buildVersion(), strings.Join(words, " ")
		report, err := export.Write(cmd.Context(), to, vfs.At(out), m, o)
		if err != nil {
			return nil, err
		}
		for _, w := range report.Warnings {
			newLogger(cmd).Warn(w)
		}
		return &answer{report, func(w io.Writer) {
			fmt.Fprintf(w, "%s, step %d, as %s in %s\n", args[0], model.Step(), report.Format, report.Path)
			for _, line := range report.Summary() {
				fmt.Fprintln(w, "  "+line)
			}
		}}, nil
	})
}

func newImport() *cobra.Command {
	var out string
	var context int
	var parentPipe time.Duration
	cmd := &cobra.Command{
		Use:   "import CHECKPOINT|FILE.gguf [--out RUN]",
		Short: "Make a run directory of a Hugging Face checkpoint or a GGUF file",
		Long: `Read the directory of a Hugging Face checkpoint (Llama, Mistral without window, OLMo 2,
Qwen3; safetensors, one file or several), or a GGUF file of such a model (tensors in F32,
F16, BF16, Q8_0, Q4_0, Q4_1, MXFP4), and show how it is understood: the model, and what
becomes of each tensor. Everything that is wrong is said at once.

With --out, a run directory is made that holds the model as it is, without a step of
training: it can be evaluated, sampled from and exported. A training can start from it, or
from the checkpoint itself, with model.init. Weights of a quantized GGUF file stay as
rounded as they are: their precision before is lost.`,
		Args: notNegative(exactly(1, "one directory of a Hugging Face checkpoint, or a GGUF file"),
			"context"),
	}
	cmd.Flags().StringVar(&out, "out", "", "run directory to make; empty: none")
	contextFlag(cmd, &context)
	parentPipeFlag(cmd, &parentPipe)
	return withAnswer(cmd, func(cmd *cobra.Command, args []string) (*answer, error) {
		watchParent(parentPipe)
		c, err := trained.Import(cmd.Context(), args[0], out, context)
		if run, _ := rundir.At(args[0]).Config().Exists(); run && errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("%s is a run directory already: want the directory of a Hugging Face "+
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
			[]string{"begin, end, padding", fmt.Sprint(tokens.Begin, tokens.End, tokens.Pad)})
		for _, warning := range c.Config.Warnings {
			rows = append(rows, []string{"warning", warning})
		}
		rows = append(rows, nil, []string{"tensor", "type", "shape", "becomes"})
		for _, a := range c.Report.Applied {
			rows = append(rows, []string{a.Tensor, string(a.Type), fmt.Sprint(a.Shape), a.Parameter})
		}
		for _, name := range c.Report.Ignored {
			rows = append(rows, []string{name, "", "", "ignored"})
		}
		value := map[string]any{"checkpoint": args[0], "run": out, "model": model,
			"architecture": c.Config.Architecture, "parameters": parameters, "tokens": tokens,
			"max_positions": c.Config.MaxPositions, "warnings": c.Config.Warnings,
			"tensors": c.Report}
		return &answer{value, func(w io.Writer) {
			table(w, rows)
			if out != "" {
				fmt.Fprintf(w, "\n%[1]s holds this model: try cage eval --data FILE, cage generate, or a "+
					"training with model.init = %[1]q\n", out)
			}
		}}, nil
	})
}

// shownKeys are the keys of [model] that a checkpoint determines.
var shownKeys = []string{"kind", "layers", "width", "heads", "kv_heads", "head_size", "hidden",
	"vocab", "head", "norm_eps", "rope_theta", "rope_pairs", "rope_factor", "rope_low", "rope_high",
	"rope_original"}
