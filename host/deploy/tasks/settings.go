package tasks

import "github.com/cage-qat/cage/internal/schema"

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
