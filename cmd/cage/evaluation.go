package main

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/cage-qat/cage/host/deploy/tasks"
	"github.com/cage-qat/cage/host/deploy/trained"
	"github.com/cage-qat/cage/host/model/generate"
	"github.com/cage-qat/cage/host/study"
	"github.com/cage-qat/cage/host/train/metrics"
	"github.com/cage-qat/cage/internal/safetext"
	"github.com/cage-qat/cage/internal/vfs"
)

var evalHelp = `Evaluate the newest checkpoint of a run directory on its validation set,
with the run's quantizers, and print the mean loss per token and the perplexity. For a
problem without data (quadratic or toy), print the loss at Q(x).

A run directory may be moved or copied. If the run names its validation set or plugins by
relative paths, these are resolved in the working directory, then where the run was
trained, then in the run directory.

--data names another token file, or a chat file if the run was trained on conversations.
The run's own data is then not needed. On conversations, the loss is the mean over the
tokens that training includes in its loss.

A Hugging Face checkpoint is evaluated in full precision on the file given by --data.

--quantizer evaluates the same weights with another quantizer, for which they were not
trained; "none" evaluates them in full precision:

  cage eval SmolLM2-135M --data web.tokens --quantizer mxfp4

--reference compares its predictions with those of another model, such as the one that
was quantized: the mean of KL(reference‖model), in nats per token, and the share of tokens
for which both have the same likeliest one:

  cage eval runs/4bit --reference SmolLM2-135M

With --tasks the model answers the questions of published benchmarks, which are JSONL or
Parquet files in the directory --data. Prompts and scores are the same as those of
lm-eval 0.4.13:

  cage eval runs/run --tasks hellaswag,arc_easy --data benchmarks --fewshot 5 --out eval

The tasks are:
` + taskNames()

func taskNames() (lines string) {
	for names := range slices.Chunk(tasks.Names(), 6) {
		lines += "\n  " + strings.Join(names, ", ")
	}
	return lines
}

func newEval() *cobra.Command {
	var batches, sequences int
	var reference string
	var f taskFlags
	var quantizer quantizerFlags
	cmd := &cobra.Command{
		Use:   "eval RUN|CHECKPOINT",
		Short: "Evaluate a run's newest checkpoint, or a Hugging Face checkpoint",
		Long:  evalHelp,
	}
	modelFlags(cmd, &f.open.Step, &f.open.Context, "batches", "sequences", "limit",
		"max-tokens")
	cmd.Flags().IntVar(&batches, "batches", 0, "evaluate only this many batches; 0: all")
	cmd.Flags().StringVar(&reference, "reference", "",
		"compare the predictions with those of this `RUN|CHECKPOINT`")
	cmd.Flags().IntVar(&sequences, "sequences", 0,
		"with --reference: compare only this many sequences; 0: all")
	quantizer.addReplacement(cmd.Flags())
	addKeys(cmd, f.Keys())
	parentPipeFlag(cmd)
	cmd.Flags().StringVar(&f.out, "out", "",
		"`DIR` for the answers and results of tasks; the same command resumes there")
	cmd.AddCommand(newEvalCompare())
	return withOutput(cmd, func(cmd *cobra.Command, args []string) (*output, error) {
		err := f.check(cmd)
		if err != nil {
			return nil, err
		}
		if f.open.Quantizer, err = quantizer.replacement(); err != nil {
			return nil, err
		}
		if len(f.Names) > 0 {
			return f.run(cmd, args[0])
		}
		f.open.Data = f.Data
		model, err := openRun(cmd, args[0], f.open)
		if err != nil {
			return nil, err
		}
		defer model.Close()
		if reference != "" {
			return compare(cmd, model, reference, sequences)
		}
		loss, tokens, err := model.Evaluate(cmd.Context(), batches)
		if err != nil {
			return nil, err
		}
		result := map[string]any{
			"run": args[0], "step": model.Step(), "loss": metrics.Number(loss), "tokens": tokens}
		if q := f.open.Quantizer; q != nil {
			result["quantizer"] = q.String()
		}
		label := fmt.Sprintf("%s, step %d", args[0], model.Step())
		if kind := model.Average(); kind != "" {
			result["average"], label = kind, label+fmt.Sprintf(" (weights averaged: %s)", kind)
		}
		if tokens == 0 { // a problem without data
			return textOutput(result, "%s: loss %.6g\n", label, loss), nil
		}
		result["perplexity"] = metrics.Number(math.Exp(loss)) // may be infinite, unlike JSON's numbers
		return textOutput(result, "%s: loss %.4f, perplexity %.3f over %d tokens\n",
			label, loss, math.Exp(loss), tokens), nil
	})
}

// compare compares a model's predictions with those of the model in dir.
func compare(cmd *cobra.Command, model *trained.Model, dir string, sequences int) (*output, error) {
	reference, err := model.OpenReference(cmd.Context(), dir, trained.Options{Logger: newLogger(cmd)})
	if err != nil {
		return nil, err
	}
	defer reference.Close()
	c, err := model.Compare(cmd.Context(), reference, sequences)
	if err != nil {
		return nil, err
	}
	return textOutput(map[string]any{"run": model.Dir, "step": model.Step(), "reference": dir,
		"loss": metrics.Number(c.Loss), "kl": metrics.Number(c.KL),
		"agreement": metrics.Number(c.Agreement), "tokens": c.Tokens,
		"sequences": map[string]any{"kl": metrics.List(c.Sequences.KL),
			"agreement": metrics.List(c.Sequences.Agreement)}},
		"%s, step %d, beside %s: loss %.4f, KL %.5f, %.2f %% of the likeliest tokens equal, over %d "+
			"tokens\n", model.Dir, model.Step(), dir, c.Loss, c.KL, 100*c.Agreement, c.Tokens), nil
}

// modelFlags adds the flags of commands that take a model. It rejects negative values of --step,
// --context and notNegativeFlags.
func modelFlags(cmd *cobra.Command, step, context *int, notNegativeFlags ...string) {
	one := exactly(1, "one run directory or Hugging Face checkpoint")
	cmd.Args = notNegative(one, append(notNegativeFlags, "step", "context")...)
	cmd.Flags().IntVar(step, "step", 0, "use the checkpoint of this step instead of the newest")
	contextFlag(cmd, context)
}

func contextFlag(cmd *cobra.Command, context *int) {
	cmd.Flags().IntVar(context, "context", 0,
		"context length for a model that is not a run, in tokens; 0: its own, at most 2048")
}

func openRun(cmd *cobra.Command, dir string, o trained.Options) (model *trained.Model, err error) {
	o.Logger = newLogger(cmd)
	return trained.Open(cmd.Context(), dir, o)
}

func newGenerate() *cobra.Command {
	var prompt string
	var endless bool
	o, opts := trained.Options{Generate: 1, NoData: true}, generate.Options{}
	cmd := &cobra.Command{
		Use:   "generate RUN|CHECKPOINT",
		Short: "Continue a prompt with a trained model",
		Long: `Continue a prompt with a checkpoint of a run directory, with the run's quantizers,
until the end of the document or of a turn of a conversation. The text is printed token by
token. Equal seeds give equal text. The training data is not needed. The model can also be
the directory of a Hugging Face checkpoint.`,
	}
	modelFlags(cmd, &o.Step, &o.Context, samplingFlags...)
	flags := cmd.Flags()
	flags.StringVar(&prompt, "prompt", "", "text to continue; default: the start of a document")
	flags.BoolVar(&endless, "endless", false, "continue after the end of the document")
	addSamplingFlags(flags, &opts)
	return withOutput(cmd, func(cmd *cobra.Command, args []string) (*output, error) {
		if err := checkSampling(opts); err != nil {
			return nil, err
		}
		model, err := openRun(cmd, args[0], o)
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
		result := map[string]any{"run": args[0], "step": model.Step(), "prompt": safetext.Valid(prompt),
			"text": text}
		return textOutput(result, "\n"), nil
	})
}

var samplingFlags = []string{"tokens", "temperature", "top-k", "top-p"}

func addSamplingFlags(flags *pflag.FlagSet, o *generate.Options) {
	flags.IntVar(&o.Tokens, "tokens", 200, "maximum number of tokens to generate")
	flags.Float64Var(&o.Temperature, "temperature", 0.8, "temperature; 0: the most likely token")
	flags.IntVar(&o.TopK, "top-k", 0, "sample from the K most likely tokens only; 0: all")
	flags.Float64Var(&o.TopP, "top-p", 0,
		"sample from the most likely tokens with this total probability; 0: all")
	flags.Uint64Var(&o.Seed, "seed", 0, "seed of the sampling")
}

// checkSampling returns an error for the flags that [modelFlags] does not check.
func checkSampling(o generate.Options) error {
	switch {
	case !(o.Temperature >= 0):
		return usagef("--temperature %v: want 0 or more", o.Temperature)
	case !(o.TopP >= 0 && o.TopP <= 1):
		return usagef("--top-p %v: want a number from 0 to 1", o.TopP)
	}
	return nil
}

// textPrinter returns a function that prints a piece of text, or does nothing if --json is set.
func textPrinter(cmd *cobra.Command) func(text string) error {
	return func(text string) error {
		if wantsJSON(cmd) {
			return nil
		}
		_, err := io.WriteString(cmd.OutOrStdout(), text)
		return err
	}
}

type taskFlags struct {
	tasks.Settings
	out  string
	open trained.Options
}

// check returns an error about flags that would have no effect.
func (f *taskFlags) check(cmd *cobra.Command) error {
	unused, when := []string{"batches", "reference", "sequences"}, "with"
	if len(f.Names) == 0 {
		unused, when = []string{"out", "examples", "fewshot", "limit", "batch", "max-tokens", "chat",
			"one-turn"}, "without"
	}
	for _, name := range []string{"reference", "data", "tasks"} { // such as an unset variable
		flag := cmd.Flags().Lookup(name)
		if text := flag.Value.String(); flag.Changed && (text == "" || text == "[]") {
			return usagef("--%s is empty: want a value, or leave it out", name)
		}
	}
	for _, name := range unused {
		if cmd.Flags().Changed(name) {
			return usagef("--%s cannot be used %s --tasks", name, when)
		}
	}
	if cmd.Flags().Changed("sequences") && !cmd.Flags().Changed("reference") {
		return usagef("--sequences applies only to comparisons: want --reference with it")
	}
	if cmd.Flags().Changed("batches") && cmd.Flags().Changed("reference") {
		return usagef("--batches cannot be used with --reference: want --sequences")
	}
	if f.OneTurn && !f.Chat {
		return usagef("--one-turn applies only to conversations: want --chat with it")
	}
	return nil
}

func (f *taskFlags) run(cmd *cobra.Command, dir string) (*output, error) {
	if f.Data == "" {
		return nil, usagef("--data is missing: want the directory with the files of the tasks")
	}
	if err := checkKeys(cmd, f.Keys()); err != nil {
		return nil, err
	}
	list, err := openTasks(f.Names)
	if err != nil {
		return nil, usageError{err}
	}
	o := f.open
	o.NoData, o.Score = true, true
	if slices.ContainsFunc(list, func(t *tasks.Task) bool { return t.Kind == tasks.Generation }) {
		o.Generate = f.Batch
	}
	model, err := openRun(cmd, dir, o)
	if err != nil {
		return nil, err
	}
	defer model.Close()
	e := trained.Tasks{Model: model, Settings: f.Settings, Out: f.out,
		Progress: func(task string) func(done, of int) { return taskProgress(cmd, task) }}
	answered, err := e.Ask(cmd.Context(), list)
	if err != nil {
		return nil, err
	}
	results, err := e.Summarize(answered)
	if err != nil {
		return nil, err
	}
	return &output{results, func(w io.Writer) { table(w, tasks.Table(answered)) }}, nil
}

func openTasks(names []string) (list []*tasks.Task, err error) {
	seen := map[string]bool{}
	for _, name := range names {
		t, err := tasks.Open(name)
		if err != nil {
			return nil, fmt.Errorf("--tasks: %w", err)
		}
		if seen[t.Name] {
			return nil, fmt.Errorf("--tasks: task %q is given twice", t.Name)
		}
		seen[t.Name] = true
		list = append(list, t)
	}
	return list, nil
}

// taskProgress returns a function that logs, every ten seconds, the number of answered questions
// and the estimated time left.
func taskProgress(cmd *cobra.Command, name string) func(done, of int) {
	begun, due, first := time.Now(), throttle(10*time.Second), -1
	return func(done, of int) {
		if first < 0 {
			begun, first = time.Now(), done
		}
		if done == first || !due() {
			return
		}
		left := time.Duration(float64(time.Since(begun)) * float64(of-done) / float64(done-first))
		newLogger(cmd).Info(fmt.Sprintf("%s: %d of %d answers, %s left",
			name, done, of, left.Round(time.Second)))
	}
}

func newEvalCompare() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "compare DIR DIR",
		Short: "Compare the answers of two models to the same questions",
		Long: `Compare two evaluations of tasks, given by their --out directories: the means of each
metric, their difference with a 95 % confidence interval (Student's t of the paired
differences), and the number of questions on which only one of the models is better. In
place of perplexity, the mean log-probability is compared. Tasks whose items are whole
texts are left out.`,
		Args: exactly(2, "the --out directories of two evaluations"),
	}
	return withOutput(cmd, func(cmd *cobra.Command, args []string) (*output, error) {
		list, single, err := tasks.Compare(vfs.At(args[0]), vfs.At(args[1]))
		if err != nil {
			return nil, err
		}
		if len(single) > 0 {
			newLogger(cmd).Warn("tasks of one evaluation only are not compared", "tasks", single)
		}
		var value []map[string]any
		rows := [][]string{{"task", "metric", "items", "first", "second", "difference",
			"95 % interval", "only first", "only second"}}
		for _, c := range list {
			d := study.Pair(c.First, c.Second, study.Level)
			first, second := study.Describe(c.First).Mean, study.Describe(c.Second).Mean
			items := study.PairItems([][]float64{c.First}, [][]float64{c.Second}, study.Level)
			interval := "–"
			if d.HasInterval() {
				interval = fmt.Sprintf("[%+.4f, %+.4f]", d.Low, d.High)
			}
			metric := strings.Replace(c.Metric, tasks.Perplexity, "logprob", 1)
			value = append(value, map[string]any{"task": c.Task, "metric": metric, "items": d.N,
				"first": metrics.Number(first), "second": metrics.Number(second),
				"difference": metrics.Number(d.Mean), "low": metrics.Number(d.Low),
				"high": metrics.Number(d.High), "only_first": items.More, "only_second": items.Less})
			rows = append(rows, []string{c.Task, metric, fmt.Sprint(d.N), fmt.Sprintf("%.4f", first),
				fmt.Sprintf("%.4f", second), fmt.Sprintf("%+.4f", d.Mean), interval,
				fmt.Sprint(items.More), fmt.Sprint(items.Less)})
		}
		return tableOutput(value, rows), nil
	})
}
