package main

import (
	"io"
	"math"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/cage-qat/cage/host/deploy/tasks"
	"github.com/cage-qat/cage/host/deploy/trained"
	"github.com/cage-qat/cage/host/model/generate"
	"github.com/cage-qat/cage/host/train/metrics"
)

var evalHelp = `Evaluate the newest checkpoint of a run directory on its validation set, with
the run's quantizers: the mean loss per token and the perplexity. Of a problem
without data, the loss of its quantized point.

A run directory may be moved or copied. The validation set and plugins that it names
by a path are looked for at that path, then where the run was trained, then in the run
directory; --data needs neither the training nor the validation set.

--data names a token file or a chat file, whichever of the two the run was trained on. On
conversations the loss is that of a training's validation: over what is learned in them.

The directory of a Hugging Face checkpoint is evaluated as it is, in full precision, on
the file that --data names.

--quantizer evaluates the same weights under another quantizer than the run's, or under
one where there was none, without any training for it; with none, in full precision:

  cage eval SmolLM2-135M --data web.tokens --quantizer mxfp4

With --tasks the model answers the questions of published benchmarks, which lie as JSONL
or Parquet in the folder --data. Prompts, scores and errors are those of lm-eval 0.4.13:

  cage eval runs/run --tasks hellaswag,arc_easy --data benchmarks --fewshot 5 --out eval

There are ` + strings.Join(breakLines(strings.Join(tasks.Names(), ", ")+".", 78), "\n")

func newEval() *cobra.Command {
	var batches int
	var f taskFlags
	var quantizer quantizerFlags
	cmd := &cobra.Command{
		Use:   "eval RUN|CHECKPOINT",
		Short: "Evaluate a run's newest checkpoint, or one of the Hugging Face hub",
		Long:  evalHelp,
		Args:  notNegative(exactly(1, "one run directory or Hugging Face checkpoint"), "batches", "step", "context", "limit", "max-tokens"),
	}
	contextFlag(cmd, &f.context)
	cmd.Flags().IntVar(&batches, "batches", 0, "evaluate only this many batches; 0: all")
	cmd.Flags().IntVar(&f.step, "step", 0, "evaluate the checkpoint of this step instead of the newest")
	quantizer.addReplacement(cmd.Flags())
	f.add(cmd)
	cmd.AddCommand(newEvalRescore(), newEvalCompare())
	return withAnswer(cmd, func(cmd *cobra.Command, args []string) (*answer, error) {
		watchLifeline(f.lifeline)
		var err error
		if f.quantizer, err = quantizer.replacement(); err != nil {
			return nil, err
		}
		if len(f.Names) > 0 {
			return f.run(cmd, args[0])
		}
		model, err := openRun(cmd, args[0], trained.Options{Step: f.step, Data: f.Data, Context: f.context, Quantizer: f.quantizer})
		if err != nil {
			return nil, err
		}
		defer model.Close()
		loss, tokens, err := model.Evaluate(cmd.Context(), batches)
		if err != nil {
			return nil, err
		}
		result := map[string]any{"run": args[0], "step": model.Step(), "loss": metrics.Number(loss), "tokens": tokens}
		if f.quantizer != nil {
			result["quantizer"] = f.quantizer.String()
		}
		if tokens == 0 { // a problem without data
			return textAnswer(result, "%s, step %d: loss %.6g\n", args[0], model.Step(), loss), nil
		}
		result["perplexity"] = metrics.Number(math.Exp(loss)) // may be infinite, which JSON has no number for
		return textAnswer(result, "%s, step %d: loss %.4f, perplexity %.3f over %d tokens\n", args[0], model.Step(), loss, math.Exp(loss), tokens), nil
	})
}

// contextFlag adds the flag for the context of a Hugging Face checkpoint.
func contextFlag(cmd *cobra.Command, context *int) {
	cmd.Flags().IntVar(context, "context", 0, "tokens of a sequence of a Hugging Face checkpoint; 0: as many as it has positions, 2048 at most")
}

// openRun opens a trained model, which logs to the standard error of the command.
func openRun(cmd *cobra.Command, dir string, o trained.Options) (model *trained.Model, err error) {
	if o.Logger, err = newLogger(cmd, cmd.ErrOrStderr()); err != nil {
		return nil, err
	}
	return trained.Open(cmd.Context(), dir, o)
}

func newGenerate() *cobra.Command {
	var prompt string
	var step, context int
	var endless bool
	opts := generate.Options{}
	cmd := &cobra.Command{
		Use:   "generate RUN|CHECKPOINT",
		Short: "Continue a prompt with a trained model",
		Long: `Continue a prompt with a checkpoint of a run directory, with the run's quantizers,
until the document ends, or a turn of a conversation. The text appears as it grows. Equal
seeds give equal text. The data of the training is not needed. The directory of a Hugging
Face checkpoint is used as it is.`,
		Args: notNegative(exactly(1, "one run directory or Hugging Face checkpoint"), "tokens", "temperature", "top-k", "top-p", "step", "context"),
	}
	contextFlag(cmd, &context)
	flags := cmd.Flags()
	flags.StringVar(&prompt, "prompt", "", "text to continue; empty: the start of a document")
	flags.IntVar(&step, "step", 0, "use the checkpoint of this step instead of the newest")
	flags.BoolVar(&endless, "endless", false, "go on behind the end of the document")
	samplingFlags(flags, &opts)
	return withAnswer(cmd, func(cmd *cobra.Command, args []string) (*answer, error) {
		model, err := openRun(cmd, args[0], trained.Options{Step: step, Generate: 1, NoData: true, Context: context})
		if err != nil {
			return nil, err
		}
		defer model.Close()
		if endless {
			opts.Stop = []int32{}
		}
		show := textPrinter(cmd)
		if err := show(prompt); err != nil {
			return nil, err
		}
		text, err := model.Generate(cmd.Context(), prompt, opts, show)
		if err != nil {
			return nil, err
		}
		result := map[string]any{"run": args[0], "step": model.Step(), "prompt": prompt, "text": text}
		return textAnswer(result, "\n"), nil
	})
}

// samplingFlags adds the flags for drawing tokens.
func samplingFlags(flags *pflag.FlagSet, o *generate.Options) {
	flags.IntVar(&o.Tokens, "tokens", 200, "tokens to generate at most")
	flags.Float64Var(&o.Temperature, "temperature", 0.8, "temperature; 0 takes the likeliest token")
	flags.IntVar(&o.TopK, "top-k", 0, "draw from the K likeliest tokens only; 0: all")
	flags.Float64Var(&o.TopP, "top-p", 0, "draw from the fewest likeliest tokens with this share of the probability; 0: all")
	flags.Uint64Var(&o.Seed, "seed", 0, "seed of the draws")
}

// textPrinter prints text as it grows, unless the answer is to be JSON.
func textPrinter(cmd *cobra.Command) func(text string) error {
	return func(text string) error {
		if wantsJSON(cmd) {
			return nil
		}
		_, err := io.WriteString(cmd.OutOrStdout(), text)
		return err
	}
}
