package trained

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/cage-qat/cage/host/data/chat"
	"github.com/cage-qat/cage/host/data/tokenizer"
	"github.com/cage-qat/cage/host/deploy/ruler"
	"github.com/cage-qat/cage/host/deploy/tasks"
)

// Ruler asks a model the questions of RULER.
type Ruler struct {
	Tasks // Source, Chat and the like are not used
	ruler.Settings
	List      []ruler.Task // the tasks that the settings name
	Generator *ruler.Generator
}

// Ask asks the questions and summarizes the scores. Answers that are in Out are not asked again.
func (r *Ruler) Ask(ctx context.Context) (*ruler.Report, error) {
	lengths := r.SortedLengths()
	tok, err := r.Model.Tokenizer()
	if err != nil {
		return nil, err
	}
	if context, longest := r.Model.Context(), slices.Max(lengths); context < longest {
		return nil, fmt.Errorf("--length %d exceeds the context of %s, which is %d tokens",
			longest, r.Model.Dir, context)
	}
	g := r.Generator
	if g.Inputs, err = r.Files.Read(); err != nil {
		return nil, err
	}
	g.Count = func(text string) (int, error) {
		ids, err := tok.Encode(text)
		return len(ids), err
	}
	if err := r.readTemplate(tok); err != nil {
		return nil, fmt.Errorf("--template: %w", err)
	}
	list, left := g.LeftOut(r.List)
	if len(list) == 0 {
		return nil, fmt.Errorf("each of these tasks needs an input that was not given: %s", left)
	}
	type question struct {
		ruler.Task
		length int
	}
	questions := map[*tasks.Task]question{}
	var all []*tasks.Task
	// Tasks whose prompts do not fit, and files with too few questions, are found before the model
	// is asked, which takes much longer than to make a prompt twice.
	var unfit []error
	for _, length := range lengths {
		for _, t := range list {
			all = append(all, t.At(length))
			questions[all[len(all)-1]] = question{t, length}
			if _, err := g.Samples(ctx, t, length, r.Samples, 1); err != nil {
				unfit = append(unfit, err)
			}
		}
	}
	if len(unfit) > 0 {
		return nil, errors.Join(unfit...)
	}
	r.whole = true
	r.items = func(ctx context.Context, t *tasks.Task) (items []tasks.Item, err error) {
		q := questions[t]
		samples, err := g.Samples(ctx, q.Task, q.length, r.Samples, r.Samples)
		if err != nil {
			return nil, err
		}
		items = make([]tasks.Item, len(samples))
		for i, s := range samples {
			items[i], err = tasks.NewTargetsItem(i, s.Prompt(), s.Outputs, r.encoder)
			if err != nil {
				return nil, err
			}
		}
		return items, nil
	}
	results, err := r.Tasks.Ask(ctx, all)
	if err != nil {
		return nil, err
	}
	if _, err := r.Summarize(results); err != nil {
		return nil, err
	}
	notes := g.Substitutions(list)
	if left != "" {
		notes = append([]string{"left out: " + left}, notes...)
	}
	report := ruler.NewReport(list, lengths, results, notes...)
	report.Model = fmt.Sprintf("%s, step %d", r.Model.Dir, r.Model.Step())
	return report, nil
}

// readTemplate makes the generator put the text of the chat template around each question.
func (r *Ruler) readTemplate(tok tokenizer.Tokenizer) error {
	name := r.Template
	switch name {
	case "":
		return nil
	case "own":
		name = ""
	}
	t, err := chat.OpenTemplate(name, r.Model.Dir, tokenizer.AddsBOS(tok))
	if err != nil {
		return err
	}
	const question = "the-question-of-ruler" // a text that templates do not have
	text, err := t.Render(chat.Conversation{chat.NewMessage(chat.User, question)}, true)
	if err != nil {
		return err
	}
	at := strings.LastIndex(text.Text, question)
	if at < 0 {
		return errors.New("the template does not render user messages")
	}
	r.Generator.Before, r.Generator.After = text.Text[:at], text.Text[at+len(question):]
	return nil
}
