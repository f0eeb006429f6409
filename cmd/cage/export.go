package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/cage-qat/cage/host/deploy/export"
	"github.com/cage-qat/cage/host/deploy/trained"
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
	flags.StringVar(&o.Type, "type", "", "`TYPE` of quantized weights; default: the smallest that is exact")
	flags.StringVar(&o.Float, "dtype", "f32", "type of all other weights: f32, bf16 or f16; with --to hf of quantized ones too")
	flags.StringVar(&weights, "weights", weightsQuantized, "quantized: Q(x); latent: x, which the optimizer keeps")
	flags.IntVar(&step, "step", 0, "export the checkpoint of this step instead of the newest")
	flags.BoolVar(&o.Inexact, "inexact", false, "store what the format cannot hold exactly as what comes near")
	flags.BoolVar(&o.Floats, "allow-floats", false,
		"store quantized weights that the format cannot pack as floats, such as rotated ones")
	flags.BoolVar(&o.Activations, "activations", false, "with compressed-tensors: have the inputs of layers quantized as in training")
	return withAnswer(cmd, func(cmd *cobra.Command, args []string) (*answer, error) {
		if err := checkExport(to, out, weights); err != nil {
			return nil, err
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
		m.Card.Version, m.Card.Command = buildVersion(), exportCommand(cmd, args[0])
		report, err := export.Write(cmd.Context(), to, vfs.At(out), m, o)
		if err != nil {
			return nil, err
		}
		log, err := newLogger(cmd, cmd.ErrOrStderr())
		if err != nil {
			return nil, err
		}
		for _, w := range report.Warnings {
			log.Warn(w)
		}
		return &answer{report, func(w io.Writer) {
			fmt.Fprintf(w, "%s, step %d, as %s in %s\n", args[0], model.Step(), report.Format, report.Path)
			for _, line := range report.Summary() {
				fmt.Fprintln(w, "  "+line)
			}
		}}, nil
	})
}

func checkExport(to, out, weights string) error {
	switch {
	case !slices.Contains(export.Formats(), to):
		return usageError{fmt.Errorf("--to %q: want one of %s", to, strings.Join(export.Formats(), ", "))}
	case out == "":
		return usageError{fmt.Errorf("--out is missing: want the directory to make")}
	case weights != weightsQuantized && weights != weightsLatent:
		return usageError{fmt.Errorf("--weights %q: want %s or %s", weights, weightsQuantized, weightsLatent)}
	}
	return nil
}

func exportCommand(cmd *cobra.Command, run string) string {
	words := []string{"cage export", run}
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if f.Value.Type() == "bool" {
			words = append(words, "--"+f.Name)
		} else {
			words = append(words, "--"+f.Name, f.Value.String())
		}
	})
	return strings.Join(words, " ")
}
