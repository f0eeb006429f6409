package tasks

import (
	"fmt"
	"path/filepath"
)

// Source says which questions of a task are put to a model, and where their rows are.
type Source struct {
	Data     string // folder with the rows
	Examples string // folder with TASK.jsonl, for tasks whose examples are fixed
	Shots    int    // examples before a question; negative: the task's number
	Limit    int    // only so many questions, the first; 0: all
}

// Items puts the questions to models with this encoder; the number of examples in the options is that of the source. There
// are all questions in the files, of which Limit may leave some out.
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

// Files are the files with the rows of a task: questions, and the examples before them.
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

// Possible tells why a task cannot be asked with as many examples, whatever the rows are.
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
