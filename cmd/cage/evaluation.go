package main

import (
	"fmt"
	"math"

	"github.com/spf13/cobra"

	"github.com/cage-qat/cage/host/generate"
	"github.com/cage-qat/cage/host/train"
)

func newEval() *cobra.Command {
	var batches, step int
	var dataFile string
	cmd := &cobra.Command{
		Use:   "eval RUN",
		Short: "Evaluate a run's newest checkpoint",
		Long: `Evaluate the newest checkpoint of a run directory on its validation set, with
the run's quantizers: the mean loss per token and the perplexity. Of a problem
without data, the loss of its quantized point.

A run directory may be moved or copied. The validation set and plugins that it names
by a path are looked for at that path, then where the run was trained, then in the run
directory; --data needs neither the training nor the validation set.`,
		Args: exactly(1, "one run directory"),
	}
	asJSON := jsonFlag(cmd)
	cmd.Flags().IntVar(&batches, "batches", 0, "evaluate only this many batches; 0: all")
	cmd.Flags().IntVar(&step, "step", 0, "evaluate the checkpoint of this step instead of the newest")
	cmd.Flags().StringVar(&dataFile, "data", "", "evaluate on the token file `FILE` instead of the validation set")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := notNegative(cmd, "batches", "step"); err != nil {
			return err
		}
		log, err := newLogger(cmd, nil)
		if err != nil {
			return err
		}
		trained, err := train.Open(cmd.Context(), args[0], train.OpenOptions{Step: step, Data: dataFile, Logger: log})
		if err != nil {
			return err
		}
		defer trained.Close()
		loss, tokens, err := trained.Evaluate(cmd.Context(), batches)
		if err != nil {
			return err
		}
		if *asJSON {
			result := map[string]any{"run": args[0], "step": trained.Step(), "loss": loss, "tokens": tokens}
			if tokens > 0 {
				result["perplexity"] = math.Exp(loss)
			}
			return printJSON(cmd, result)
		}
		if tokens == 0 { // a problem without data
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s, step %d: loss %.6g\n", args[0], trained.Step(), loss)
			return err
		}
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s, step %d: loss %.4f, perplexity %.3f over %d tokens\n",
			args[0], trained.Step(), loss, math.Exp(loss), tokens)
		return err
	}
	return cmd
}

func newGenerate() *cobra.Command {
	var prompt string
	opts := generate.Options{}
	cmd := &cobra.Command{
		Use:   "generate RUN",
		Short: "Continue a prompt with a trained model",
		Long: `Continue a prompt with the newest checkpoint of a run directory, with the run's
quantizers. Equal seeds give equal text. The data of the training is not needed.`,
		Args: exactly(1, "one run directory"),
	}
	asJSON := jsonFlag(cmd)
	flags := cmd.Flags()
	flags.StringVar(&prompt, "prompt", "", "text to continue; empty: the start of a document")
	flags.IntVar(&opts.Tokens, "tokens", 200, "tokens to generate")
	flags.Float64Var(&opts.Temperature, "temperature", 0.8, "temperature; 0 takes the likeliest token")
	flags.IntVar(&opts.TopK, "top-k", 0, "draw from the K likeliest tokens only; 0: all")
	flags.Uint64Var(&opts.Seed, "seed", 0, "seed of the draws")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := notNegative(cmd, "tokens", "temperature", "top-k"); err != nil {
			return err
		}
		log, err := newLogger(cmd, nil)
		if err != nil {
			return err
		}
		trained, err := train.Open(cmd.Context(), args[0], train.OpenOptions{Batch: 1, NoData: true, Logger: log})
		if err != nil {
			return err
		}
		defer trained.Close()
		text, err := trained.Generate(cmd.Context(), prompt, opts)
		if err != nil {
			return err
		}
		if *asJSON {
			return printJSON(cmd, map[string]any{"run": args[0], "step": trained.Step(), "prompt": prompt, "text": text})
		}
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s%s\n", prompt, text)
		return err
	}
	return cmd
}
