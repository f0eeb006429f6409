package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/cage-qat/cage/host/data/chat"
	"github.com/cage-qat/cage/host/data/tokenizer"
	"github.com/cage-qat/cage/host/deploy/query"
	"github.com/cage-qat/cage/host/deploy/ruler"
	"github.com/cage-qat/cage/host/deploy/trained"
	"github.com/cage-qat/cage/host/train/rundir"
)

// plan finds what is wrong with the command line alone, and reads the inputs.
func (f *rulerFlags) plan(cmd *cobra.Command) (plan ruler.Plan, g *ruler.Generator, err error) {
	tasks, err := ruler.Select(f.Names)
	switch {
	case err != nil:
		return plan, nil, usageError{fmt.Errorf("--tasks: %w", err)}
	case f.out == "":
		return plan, nil, usageError{fmt.Errorf("--out is required: the directory of prompts and answers")}
	}
	if err := checkKeys(cmd, f.Keys()); err != nil {
		return plan, nil, err
	}
	g = &ruler.Generator{Seed: f.seed}
	if g.Inputs, err = f.Files.Read(); err != nil {
		return plan, nil, err
	}
	return ruler.Plan{Tasks: tasks, Lengths: f.SortedLengths(), Samples: f.Samples}, g, nil
}

// settings name what the prompts depend on, and count tokens with a tokenizer.
func (f *rulerFlags) settings(plan *ruler.Plan, g *ruler.Generator, tok tokenizer.Tokenizer) {
	plan.Settings = map[string]string{"tokenizer": tok.Info().SHA256, "template": "none"}
	if f.Template != "" {
		plan.Settings["template"] = g.Before + "…" + g.After
	}
	g.Count = func(text string) (int, error) {
		ids, err := tok.Encode(text)
		return len(ids), err
	}
}

// template finds what a template of conversations prints around a question. spec is where
// the model's own is.
func (f *rulerFlags) template(g *ruler.Generator, tok tokenizer.Tokenizer, spec string) error {
	if f.Template == "" {
		return nil
	}
	name := f.Template
	if name == "own" {
		name = ""
	}
	t, err := chat.OpenTemplate(name, spec, tokenizer.AddsBOS(tok))
	if err != nil {
		return fmt.Errorf("--template: %w", err)
	}
	const question = "question"
	r, err := t.Render(chat.Conversation{chat.NewMessage(chat.User, question)}, true)
	if err != nil {
		return fmt.Errorf("--template: %w", err)
	}
	at := strings.LastIndex(r.Text, question)
	if at < 0 {
		return fmt.Errorf("--template %s: it does not print the messages of users", f.Template)
	}
	g.Before, g.After = r.Text[:at], r.Text[at+len(question):]
	return nil
}

// rulerProgress reports what has been done, every few seconds.
func rulerProgress(cmd *cobra.Command) (func(doing string, t ruler.Task, length, done, of int), error) {
	log, err := newLogger(cmd, cmd.ErrOrStderr())
	if err != nil {
		return nil, err
	}
	const pause = 10 * time.Second
	next := time.Now().Add(pause)
	return func(doing string, t ruler.Task, length, done, of int) {
		if now := time.Now(); now.After(next) {
			next = now.Add(pause)
			log.Info(fmt.Sprintf("%s at %d: %d of %d %s", t.Name, length, done, of, doing))
		}
	}, nil
}

// rulerModel is the model that answers.
type rulerModel struct {
	batch, step, context int
	threshold            float64

	model *trained.Model
	tok   tokenizer.Tokenizer
	name  ruler.ModelName
}

func (m *rulerModel) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.IntVar(&m.batch, "batch", 4, "prompts that are answered at once")
	flags.IntVar(&m.step, "step", 0, "use the checkpoint of this step instead of the newest")
	flags.IntVar(&m.context, "context", 0, "tokens of a sequence of a Hugging Face checkpoint; 0: the largest length")
	thresholdFlag(cmd, &m.threshold)
}

// open opens the model for prompts of these lengths.
func (m *rulerModel) open(cmd *cobra.Command, dir string, lengths []int) error {
	if m.batch < 1 {
		return usageError{fmt.Errorf("--batch %d: want 1 or more", m.batch)}
	}
	longest := slices.Max(lengths)
	run, err := rundir.At(dir).Config().Exists()
	if err != nil {
		return err
	}
	if !run {
		m.context = cmp.Or(m.context, longest)
	}
	m.model, err = openRun(cmd, dir, trained.Options{Step: m.step, Generate: m.batch, NoData: true, Context: m.context})
	if err != nil {
		return err
	}
	m.name = query.RulerName(dir, m.model, m.batch)
	m.tok, err = m.model.Tokenizer()
	if context := m.model.Context(); err == nil && context < longest {
		err = fmt.Errorf("%s sees %d tokens at most: want a --length of no more, not %d", dir, context, longest)
	}
	if err != nil {
		m.model.Close()
	}
	return err
}
