package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/cage-qat/cage/host/data/chat"
	"github.com/cage-qat/cage/host/data/tokenizer"
	"github.com/cage-qat/cage/host/deploy/ruler"
	"github.com/cage-qat/cage/host/deploy/trained"
	"github.com/cage-qat/cage/host/train/rundir"
	"github.com/cage-qat/cage/internal/vfs"
)

func newRuler() *cobra.Command {
	f := rulerFlags{}
	var m rulerModel
	var parentPipe time.Duration
	cmd := &cobra.Command{
		Use:   "ruler RUN|CHECKPOINT",
		Short: "Evaluate a model on long contexts (RULER)",
		Long: `Evaluate a model on the 13 tasks of RULER, which hide information in a text of a given
length. The prompts are those of RULER's scripts; the answers are decoded greedily. They
are written to --out, in RULER's format. If the command is stopped or killed, the same
command resumes.

Some tasks need published texts (--essay, --squad, --hotpot), and are left out without
them. Words are generated, unless --words gives lists.

  cage ruler runs/long --length 4096,8192 --samples 100 --out ruler/long`,
	}
	modelFlags(cmd, &m.step, &m.context)
	keys := f.Keys()
	for i := range keys {
		if keys[i].Name == "template" {
			keys[i].Doc += ": own, " + strings.Join(chat.BuiltIn(), ", ") + " or a `FILE`"
		}
	}
	addKeys(cmd, keys)
	flags := cmd.Flags()
	flags.Uint32Var(&f.seed, "seed", ruler.DefaultSeed, "seed of the prompts")
	flags.StringVar(&f.out, "out", "", "`DIR` to write the answers to (required)")
	flags.IntVar(&m.batch, "batch", ruler.DefaultBatch, "prompts answered at once")
	flags.Lookup("context").Usage = "context length for a Hugging Face checkpoint, in tokens; " +
		"0: the largest --length"
	parentPipeFlag(cmd, &parentPipe)
	cmd.AddCommand(newRulerScore())
	return withOutput(cmd, func(cmd *cobra.Command, args []string) (*output, error) {
		watchParent(parentPipe)
		plan, g, err := f.plan(cmd)
		if err != nil {
			return nil, err
		}
		if err := m.open(cmd, args[0], plan.Lengths); err != nil {
			return nil, err
		}
		defer m.model.Close()
		if err := f.tokenize(&plan, g, m.tok, args[0]); err != nil {
			return nil, err
		}
		plan.Batch, plan.Model = m.batch, trained.RulerName(args[0], m.model, m.batch)
		d := ruler.At(vfs.At(f.out))
		model := trained.Ruler(m.model, m.tok, g.Before != "")
		if err := d.Ask(cmd.Context(), g, plan, model); err != nil {
			return nil, err
		}
		return rulerReport(d)
	})
}

func newRulerScore() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "score DIR",
		Short: "Score answers to the prompts of RULER",
		Long: `Score the answers in a directory: its files LENGTH/pred/TASK.jsonl, such as
4096/pred/vt.jsonl, as RULER's scripts write them. No model is needed.`,
		Args: exactly(1, "one directory with answers"),
	}
	return withOutput(cmd, func(_ *cobra.Command, args []string) (*output, error) {
		return rulerReport(ruler.At(vfs.At(args[0])))
	})
}

func rulerReport(d ruler.Directory) (*output, error) {
	r, err := d.Report()
	if err != nil {
		return nil, err
	}
	return &output{r, func(w io.Writer) {
		table(w, r.Table())
		fmt.Fprint(w, r.Words())
	}}, nil
}

type rulerFlags struct {
	ruler.Settings
	seed uint32
	out  string
}

func (f *rulerFlags) plan(cmd *cobra.Command) (plan ruler.Plan, g *ruler.Generator, err error) {
	tasks, err := ruler.Select(f.Names)
	switch {
	case err != nil:
		return plan, nil, usagef("--tasks: %w", err)
	case f.out == "":
		return plan, nil, usagef("--out is missing: want the directory of the answers")
	}
	if err := checkKeys(cmd, f.Keys()); err != nil {
		return plan, nil, err
	}
	g = &ruler.Generator{Seed: f.seed}
	if g.Inputs, err = f.Files.Read(); err != nil {
		return plan, nil, err
	}
	log, due := newLogger(cmd), throttle(10*time.Second)
	progress := func(t ruler.Task, length, done, of int) {
		if due() {
			log.Info(fmt.Sprintf("%s at %d: %d of %d answers", t.Name, length, done, of))
		}
	}
	plan = ruler.Plan{
		Tasks: tasks, Lengths: f.SortedLengths(), Samples: f.Samples, Progress: progress}
	return plan, g, nil
}

// tokenize makes the generator count tokens with tok, and put the text of the chat template around
// each question. It records both in the plan, because prompts depend on them. spec is the model's
// path.
func (f *rulerFlags) tokenize(
	plan *ruler.Plan, g *ruler.Generator, tok tokenizer.Tokenizer, spec string,
) error {
	g.Count = func(text string) (int, error) {
		ids, err := tok.Encode(text)
		return len(ids), err
	}
	plan.Settings = map[string]string{"tokenizer": tok.Info().SHA256, "template": "none"}
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
		return fmt.Errorf("--template %s: the template does not render user messages", f.Template)
	}
	g.Before, g.After = r.Text[:at], r.Text[at+len(question):]
	plan.Settings["template"] = g.Before + "…" + g.After
	return nil
}

type rulerModel struct {
	batch, step, context int

	model *trained.Model
	tok   tokenizer.Tokenizer
}

func (m *rulerModel) open(cmd *cobra.Command, dir string, lengths []int) error {
	if m.batch < 1 {
		return usagef("--batch %d: want 1 or more", m.batch)
	}
	longest := slices.Max(lengths)
	run, err := rundir.At(dir).Config().Exists()
	if err != nil {
		return err
	}
	if !run {
		m.context = cmp.Or(m.context, longest)
	}
	m.model, err = openRun(cmd, dir, trained.Options{
		Step: m.step, Generate: m.batch, NoData: true, Context: m.context})
	if err != nil {
		return err
	}
	m.tok, err = m.model.Tokenizer()
	if context := m.model.Context(); err == nil && context < longest {
		err = fmt.Errorf("--length %d exceeds the context of %s, which is %d tokens",
			longest, dir, context)
	}
	if err != nil {
		m.model.Close()
	}
	return err
}
