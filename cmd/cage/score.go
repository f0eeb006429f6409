package main

import (
	"cmp"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/cage-qat/cage/host/deploy/trained"
	"github.com/cage-qat/cage/host/train/metrics"
	"github.com/cage-qat/cage/internal/atomicfile"
	"github.com/cage-qat/cage/internal/vfs"
)

func newScore() *cobra.Command {
	var f scoreFlags
	var o trained.Options
	var quantizer quantizerFlags
	cmd := &cobra.Command{
		Use:   "score RUN|CHECKPOINT",
		Short: "Compute the log-probability of each token of texts",
		Long: `Compute the log-probability of each token given the tokens before it, with the run's
quantizers, to compare a model with its exports in other programs. Each line of the input
is a sequence:

  --ids FILE     a list of token ids, such as [128000, 9906, 1917]
  --texts FILE   a text as a JSON string, such as "Hello world", which is tokenized with
                 a BOS token if the tokenizer adds one to every text

Each line of the output is {"ids": [...], "log_probs": [...]}, in the order of the input.
For n ids there are n−1 natural logarithms, of all tokens but the first, as float32 in the
shortest form that identifies the value.

  cage score runs/run --ids ids.jsonl > scores.jsonl
  echo '"func main() {"' | cage score runs/run --texts - --out scores.jsonl`,
	}
	modelFlags(cmd, &o.Step, &o.Context)
	flags := cmd.Flags()
	flags.StringVar(&f.ids, "ids", "",
		"read lists of token ids from the lines of `FILE`; -: standard input")
	flags.StringVar(&f.texts, "texts", "",
		"read texts, as JSON strings, from the lines of `FILE`; -: standard input")
	flags.StringVar(&f.out, "out", "", "write to `FILE`; default: standard output")
	quantizer.addReplacement(flags)
	return withOutput(cmd, func(cmd *cobra.Command, args []string) (*output, error) {
		switch {
		case (f.ids == "") == (f.texts == ""):
			return nil, usagef("want either --ids FILE or --texts FILE")
		case wantsJSON(cmd) && f.out == "":
			return nil, usagef("--json prints a summary of --out FILE: want --out with it; " +
				"without --json the scores are printed as JSON lines")
		}
		var err error
		if o.Quantizer, err = quantizer.replacement(); err != nil {
			return nil, err
		}
		o.NoData, o.Score = true, true
		model, err := openRun(cmd, args[0], o)
		if err != nil {
			return nil, err
		}
		defer model.Close()
		sequences, err := f.read(cmd, model)
		if err != nil {
			return nil, err
		}
		logProbs, err := model.LogProbs(cmd.Context(), sequences)
		if err != nil {
			return nil, err
		}
		if f.out == "" {
			return nil, trained.WriteScores(cmd.OutOrStdout(), sequences, logProbs)
		}
		to, err := atomicfile.Target(f.out)
		if err == nil {
			err = atomicfile.Write(to, func(w io.Writer) error {
				return trained.WriteScores(w, sequences, logProbs)
			})
		}
		if err != nil {
			return nil, err
		}
		mean, tokens := trained.MeanLogProb(logProbs)
		result := map[string]any{"run": args[0], "step": model.Step(), "out": f.out,
			"sequences": len(sequences), "tokens": tokens, "mean_log_prob": metrics.Number(mean)}
		return textOutput(result,
			"%s, step %d: %d sequences in %s, mean log-probability %.6g of %d tokens\n",
			args[0], model.Step(), len(sequences), f.out, mean, tokens), nil
	})
}

type scoreFlags struct{ ids, texts, out string }

func (f *scoreFlags) read(cmd *cobra.Command, model *trained.Model) (list [][]int32, err error) {
	s := trained.Reader{MaxTokens: model.Context() + 1}
	if s.Vocab, err = model.Vocab(); err != nil {
		return nil, err
	}
	name := cmp.Or(f.ids, f.texts)
	if f.texts != "" {
		if s.Encoder, _, err = trained.Encoder(model); err != nil {
			return nil, err
		}
	}
	in := cmd.InOrStdin()
	if name == "-" {
		name = "standard input"
	} else {
		file, err := vfs.At(name).Open()
		if err != nil {
			return nil, err
		}
		defer file.Close()
		in = file
	}
	if list, err = s.Read(in); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return list, nil
}
