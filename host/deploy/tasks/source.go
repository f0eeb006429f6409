package tasks

import (
	"fmt"
	"path/filepath"
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
