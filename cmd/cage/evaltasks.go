package main

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/cage-qat/cage/host/data/tokenizer"
	"github.com/cage-qat/cage/host/deploy/tasks"
	"github.com/cage-qat/cage/host/deploy/tasks/ask"
	"github.com/cage-qat/cage/host/model/huggingface"
	"github.com/cage-qat/cage/host/model/score"
	"github.com/cage-qat/cage/host/train"
	"github.com/cage-qat/cage/internal/regular"
	"github.com/cage-qat/cage/internal/vfs"
)

// taskFlags say which tasks to ask a model, and how.
type taskFlags struct {
	tasks.Settings
	out           string
	step, context int
	lifeline      bool
	quantizer     *train.Quantizer // instead of the run's own; nil: that
}

func (f *taskFlags) add(cmd *cobra.Command) {
	addKeys(cmd, f.Keys())
	lifelineFlag(cmd, &f.lifeline)
	cmd.Flags().StringVar(&f.out, "out", "", "`DIR` for answers, samples and results of tasks; the same command goes on there")
}

// run asks the model in dir.
func (f *taskFlags) run(cmd *cobra.Command, dir string) (*answer, error) {
	if f.Data == "" {
		return nil, usageError{fmt.Errorf("--data is missing: want the folder with the rows of the tasks")}
	}
	if err := checkKeys(cmd, f.Keys()); err != nil {
		return nil, err
	}
	list, err := openTasks(f.Names)
	if err != nil {
		return nil, usageError{err}
	}
	o := train.OpenOptions{Step: f.step, Context: f.context, NoData: true, Score: true, Quantizer: f.quantizer}
	if slices.ContainsFunc(list, func(t *tasks.Task) bool { return t.Kind == tasks.Generation }) {
		o.Generate = f.Batch
	}
	trained, err := openRun(cmd, dir, o)
	if err != nil {
		return nil, err
	}
	defer trained.Close()
	e := evaluation{taskFlags: f, trained: trained, dir: dir}
	if e.encoder, e.tok, err = encoderOf(trained); err != nil {
		return nil, err
	}
	if f.Chat {
		if e.template, err = conversation(dir, e.tok); err != nil {
			return nil, err
		}
	}
	results, err := e.all(cmd, list)
	if err != nil {
		return nil, err
	}
	return e.report(results)
}

func openTasks(names []string) (list []*tasks.Task, err error) {
	seen := map[string]bool{}
	for _, name := range names {
		t, err := tasks.Open(name)
		if err != nil {
			return nil, fmt.Errorf("--tasks: %w", err)
		}
		if seen[t.Name] {
			return nil, fmt.Errorf("--tasks: there are two of the name %q", t.Name)
		}
		seen[t.Name] = true
		list = append(list, t)
	}
	return list, nil
}

// evaluation asks a model the questions of tasks.
type evaluation struct {
	*taskFlags
	dir      string
	trained  *train.Trained
	tok      tokenizer.Tokenizer
	encoder  *tasks.Encoder
	template func([]tasks.Turn) (string, error)
}

// Score implements ask.Model.
func (e *evaluation) Score(ctx context.Context, requests []score.Request, skip func(int) bool, each func([]int, []score.Score) error) error {
	return e.trained.Score(ctx, requests, skip, each)
}

// Generate implements ask.Model.
func (e *evaluation) Generate(ctx context.Context, prompts [][]int32, tokens int, until []string) ([]string, error) {
	if e.MaxTokens > 0 {
		tokens = e.MaxTokens
	}
	return e.trained.GenerateUntil(ctx, e.tok, prompts, tokens, until)
}

// all asks one task after the other.
func (e *evaluation) all(cmd *cobra.Command, list []*tasks.Task) (results []*ask.Result, err error) {
	if e.out != "" {
		unlock, err := lockFolder(vfs.At(e.out))
		if err != nil {
			return nil, err
		}
		defer unlock()
		if err := ask.OneModel(vfs.At(e.out), e.name()); err != nil {
			return nil, err
		}
		for _, t := range list {
			if err := ask.CheckOurs(vfs.At(e.out), t.Name); err != nil {
				return nil, err
			}
		}
	}
	for _, t := range list {
		r, err := e.one(cmd, t)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", t.Name, err)
		}
		results = append(results, r)
	}
	return results, nil
}

// lockFolder makes a folder and keeps other processes from writing there.
func lockFolder(dir vfs.Path) (unlock func(), err error) {
	if err := ask.Answers(dir).MkdirAll(); err != nil {
		return nil, err
	}
	lock, err := dir.Join(vfs.LockFile).Lock()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", dir, err)
	}
	return func() { lock.Unlock() }, nil
}

func (e *evaluation) one(cmd *cobra.Command, t *tasks.Task) (*ask.Result, error) {
	items, all, err := e.Source.Items(t, e.encoder, tasks.Options{Chat: e.template, OneTurn: e.OneTurn})
	if err != nil {
		return nil, err
	}
	progress, err := taskProgress(cmd, t.Name)
	if err != nil {
		return nil, err
	}
	a := ask.Asking{Task: t, Items: items, Until: t.UntilTexts(e.encoder), Batch: e.Batch, Progress: progress, Settings: map[string]string{
		"model": e.name(), "context": strconv.Itoa(e.trained.Context()), "batch": strconv.Itoa(e.Batch), "max_tokens": strconv.Itoa(e.MaxTokens)}}
	var path *vfs.Path
	if e.out != "" {
		p := ask.AnswersFile(vfs.At(e.out), t.Name)
		path = &p
	}
	answers, err := ask.Ask(cmd.Context(), path, e, a)
	if err != nil {
		return nil, err
	}
	r, err := ask.Judge(t, items, answers)
	if err == nil {
		r.All = all
	}
	return r, err
}

// name tells the model from others, also from one whose quantizers have been changed.
func (e *evaluation) name() string {
	name := e.weights()
	if e.quantizer != nil {
		name += " quantized by " + e.quantizer.String()
	}
	return identity(name, e.trained)
}

// identity is the name of a model with the digest of its quantizers, if it has any.
func identity(name string, trained *train.Trained) string {
	if programs := trained.Quantizers(); programs != "" {
		name += ", programs " + programs
	}
	return name
}

// weights tells the weights of the model from those of others.
func (e *evaluation) weights() string {
	if id := e.trained.Identity(); id != "" {
		return id
	}
	return checkpointName(e.dir)
}

// checkpointName tells a Hugging Face checkpoint from others, and from another one in its place.
func checkpointName(dir string) string {
	name := dir
	if abs, err := filepath.Abs(dir); err == nil {
		name = abs
	}
	files, _ := fs.Glob(os.DirFS(dir), "*.safetensors") // the pattern is well-formed
	for _, f := range files {
		if stat, err := os.Stat(filepath.Join(dir, f)); err == nil {
			name += fmt.Sprintf(" %s:%d:%d", stat.Name(), stat.Size(), stat.ModTime().UnixNano())
		}
	}
	// What computes with the weights, and what ends a text; the prompts are kept with the answers.
	for _, f := range []string{huggingface.ConfigName, tokenizer.GenerationFile} {
		if text, err := regular.ReadFile(filepath.Join(dir, f)); err == nil {
			name += fmt.Sprintf(" %s:%x", f, sha256.Sum256(text))
		}
	}
	return name
}

// report writes samples and results, and prints the results.
func (e *evaluation) report(list []*ask.Result) (*answer, error) {
	model := map[string]string{"model": "cage", "model_args": "pretrained=" + e.dir, "step": strconv.Itoa(e.trained.Step())}
	if e.quantizer != nil {
		model["quantizer"] = e.quantizer.String()
	}
	results := ask.Summarize(list, model)
	if e.out != "" {
		if err := ask.Write(vfs.At(e.out), list, results); err != nil {
			return nil, err
		}
	}
	return &answer{results, func(w io.Writer) { table(w, ask.Table(list)) }}, nil
}

// taskProgress reports what has been answered every few seconds, and how long the rest will take.
func taskProgress(cmd *cobra.Command, name string) (func(done, of int), error) {
	log, err := newLogger(cmd, cmd.ErrOrStderr())
	if err != nil {
		return nil, err
	}
	const pause = 10 * time.Second
	begun, next, first := time.Now(), time.Now().Add(pause), -1
	return func(done, of int) {
		now := time.Now()
		if first < 0 {
			begun, first = now, done
		}
		if now.Before(next) || done == first {
			return
		}
		next = now.Add(pause)
		left := time.Duration(float64(now.Sub(begun)) * float64(of-done) / float64(done-first))
		log.Info(fmt.Sprintf("%s: %d of %d answers, %s left", name, done, of, left.Round(time.Second)))
	}, nil
}
