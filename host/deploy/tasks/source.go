package tasks

import (
	"fmt"
	"path/filepath"

	"github.com/cage-qat/cage/internal/schema"
)

// Source says which questions of a task to ask, and where their rows are.
type Source struct {
	Data     string // folder with the rows
	Examples string // folder with TASK.jsonl, for tasks whose examples are fixed
	Shots    int    // number of examples before a question; negative: the task's number
	Limit    int    // ask only the first so many questions; 0: all
}

// Items makes the questions, encoded by e. The number of examples is that of the source. all is the number of questions
// in the files, some of which Limit may leave out.
func (s Source) Items(t *Task, e *Encoder, o Options) (items []Item, all int, err error) {
	questions, examples, err := s.Files(t)
	if err != nil {
		return nil, 0, err
	}
	docs, err := t.ReadDocs(questions, false)
	if err != nil {
		return nil, 0, err
	}
	all = len(docs)
	if s.Limit > 0 {
		docs = docs[:min(s.Limit, len(docs))]
	}
	var before []Doc
	if len(examples) > 0 {
		if before, err = t.ReadDocs(examples, t.Fixed); err != nil {
			return nil, 0, err
		}
	}
	o.Shots = s.shots(t)
	items, err = t.Items(docs, before, e, o)
	return items, all, err
}

// shots is the number of examples of a task.
func (s Source) shots(t *Task) int {
	if s.Shots < 0 {
		return t.Shots
	}
	return s.Shots
}

// Files returns the files with the rows of a task: of the questions, and of the examples before them.
func (s Source) Files(t *Task) (questions, examples []string, err error) {
	if questions, err = t.Files(s.Data, t.Split); err != nil {
		return nil, nil, err
	}
	if err = s.Possible(t); err != nil {
		return nil, nil, err
	}
	switch {
	case s.shots(t) == 0:
	case t.Fixed:
		examples = []string{filepath.Join(s.Examples, t.Name+".jsonl")}
	default:
		examples, err = t.Files(s.Data, t.From)
	}
	return questions, examples, err
}

// Possible returns an error if a task cannot be asked with that number of examples, whatever the rows are.
func (s Source) Possible(t *Task) error {
	switch {
	case s.shots(t) == 0:
	case t.Fixed && s.Examples == "":
		return fmt.Errorf("its examples are fixed: name a folder (examples) with %s.jsonl, question and target of each (lm-eval has them in its YAML file), or ask without any (fewshot 0)", t.Name)
	case !t.Fixed && t.From == "":
		return fmt.Errorf("it has no examples to put before a question: ask without any (fewshot 0)")
	}
	return nil
}

// Settings say which tasks to ask a model, and how: the flags of `cage eval --tasks`, which are keys of a study file, too.
type Settings struct {
	Names []string // names of tasks, or paths of files that describe one
	Source
	Batch int // number of texts generated at once
	// MaxTokens limits the length of a generated answer; 0 means the task's own limit.
	MaxTokens     int
	Chat, OneTurn bool // use the model's chat template; put examples and question into one message
}

// OwnShots is the value of [Source].Shots that leaves the number of examples to the task.
const OwnShots = -1

// Keys describes the settings.
func (s *Settings) Keys() []schema.Key {
	return []schema.Key{
		{Name: "tasks", To: &s.Names, Optional: "none", Doc: "names of evaluation tasks, or files that describe one (.toml); --data is then the folder with their rows"},
		{Name: "data", To: &s.Data, Is: schema.NonEmpty("that names the folder with the rows of the tasks"), Default: "",
			Doc: "evaluate on the token file or chat file `FILE` instead of the validation set; with --tasks the folder of their rows"},
		{Name: "examples", To: &s.Examples, Is: schema.NonEmpty("that names a folder"), Default: "",
			Doc: "`DIR` with TASK.jsonl for tasks whose examples are fixed (question and target)"},
		{Name: "fewshot", To: &s.Shots, Is: schema.From(0, schema.Most), Default: OwnShots, Doc: "examples before each question; default: the task's number"},
		{Name: "limit", To: &s.Limit, Is: schema.From(0, 1<<40), Default: 0, Doc: "ask only the first questions of each task; 0: all"},
		{Name: "batch", To: &s.Batch, Is: schema.From(1, schema.Most), Default: 8, Doc: "texts that are generated at once"},
		{Name: "max_tokens", To: &s.MaxTokens, Is: schema.From(0, schema.Most), Default: 0, Doc: "tokens of a generated answer; 0: the task's number"},
		{Name: "chat", To: &s.Chat, Default: false, Doc: "put questions into the model's template of conversations"},
		{Name: "one_turn", To: &s.OneTurn, Default: false, Doc: "with --chat: examples and question in one message"},
	}
}
