package tasks

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"github.com/cage-qat/cage/host/data"
	"github.com/cage-qat/cage/host/data/dataset"
	"github.com/cage-qat/cage/internal/schema"
)

// Source defines which questions of a task are asked, and where their rows are.
type Source struct {
	Data     string // directory of the rows
	Examples string // directory with TASK.jsonl, for tasks whose examples are fixed
	Shots    int    // few-shot examples before a question; negative: the task's number
	Limit    int    // ask only the first Limit questions; 0: all
}

// Items makes the questions, encoded by e; all is their number before Limit is applied. The number
// of few-shot examples is the source's, whatever o says.
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
		if before, err = t.ReadDocs(examples, t.FixedExamples); err != nil {
			return nil, 0, err
		}
	}
	o.Shots = s.shots(t)
	items, err = t.Items(docs, before, e, o)
	return items, all, err
}

func (s Source) shots(t *Task) int {
	if s.Shots < 0 {
		return t.Shots
	}
	return s.Shots
}

// Files returns the files with a task's rows: those of questions, and those of few-shot examples.
func (s Source) Files(t *Task) (questions, examples []string, err error) {
	if questions, err = t.Files(s.Data, t.Split); err != nil {
		return nil, nil, err
	}
	if err = s.CheckExamples(t); err != nil {
		return nil, nil, err
	}
	switch {
	case s.shots(t) == 0:
	case t.FixedExamples:
		examples = []string{filepath.Join(s.Examples, t.Name+".jsonl")}
	default:
		examples, err = t.Files(s.Data, t.ExampleSplit)
	}
	return questions, examples, err
}

// CheckExamples returns an error if the source asks for few-shot examples that the task does not
// have.
func (s Source) CheckExamples(t *Task) error {
	switch {
	case s.shots(t) == 0:
	case t.FixedExamples && s.Examples == "":
		return fmt.Errorf("the examples are fixed: set examples to a directory with %s.jsonl, which "+
			"holds the question and the target of each (copy them from lm-eval's YAML file), or set "+
			"fewshot to 0", t.Name)
	case !t.FixedExamples && t.ExampleSplit == "":
		return fmt.Errorf("there are no few-shot examples: set fewshot to 0")
	}
	return nil
}

// Settings are the flags of `cage eval --tasks`, which are also keys of a study file.
type Settings struct {
	Names []string // names of tasks, or paths of files that describe one
	Source
	Batch int // number of texts generated at once
	// MaxTokens limits the length of a generated answer; 0 means the task's limit.
	MaxTokens     int
	Chat, OneTurn bool // use the model's chat template; put examples and question into one message
}

// OwnShots, as the value of [Source].Shots, means the task's own number of examples.
const OwnShots = -1

// Keys returns the keys of the settings.
func (s *Settings) Keys() []schema.Key {
	return []schema.Key{
		{Name: "tasks", To: &s.Names, Optional: "none", Doc: "names of evaluation tasks, or files " +
			"that describe one (.toml); --data is then the directory with their rows"},
		{Name: "data", To: &s.Data, Default: "",
			Is: schema.NonEmpty("that names the directory with the rows of the tasks"),
			Doc: "evaluate on the token file or chat file `FILE` instead of the validation set; " +
				"with --tasks the directory with their rows"},
		{Name: "examples", To: &s.Examples, Is: schema.NonEmpty("that names a directory"), Default: "",
			Doc: "`DIR` with TASK.jsonl for tasks whose examples are fixed (question and target)"},
		{Name: "fewshot", To: &s.Shots, Is: schema.From(0, schema.Most), Default: OwnShots,
			Doc: "examples before each question; default: the task's number"},
		{Name: "limit", To: &s.Limit, Is: schema.From(0, 1<<40), Default: 0,
			Doc: "ask only the first questions of each task; 0: all"},
		{Name: "batch", To: &s.Batch, Is: schema.From(1, schema.Most), Default: 8,
			Doc: "texts that are generated at once"},
		{Name: "max_tokens", To: &s.MaxTokens, Is: schema.From(0, schema.Most), Default: 0,
			Doc: "tokens of a generated answer; 0: the task's number"},
		{Name: "chat", To: &s.Chat, Default: false,
			Doc: "put questions into the model's chat template"},
		{Name: "one_turn", To: &s.OneTurn, Default: false,
			Doc: "with --chat: examples and question in one message"},
	}
}

// ReadDocs reads rows from JSONL or Parquet files, which may be compressed, in order. Rows of fixed
// examples may have a question and a target instead of the task's columns.
func (t *Task) ReadDocs(files []string, examples bool) ([]Doc, error) {
	var list []Doc
	columns := append([]string{"question", "target"}, t.Columns...)
	found, err := data.FindRows(data.PrepareOptions{Inputs: files}, dataset.Kind{}, columns)
	if err != nil {
		return nil, err
	}
	for row, err := range found.Rows() {
		if err != nil {
			return nil, err
		}
		if row.Err != nil {
			return nil, fmt.Errorf("%s: %w", row.Path, row.Err)
		}
		d, err := t.NewDoc(row.Location(), row.Text, examples)
		if err != nil {
			return nil, err
		}
		list = append(list, d)
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("%s: no rows", strings.Join(files, ", "))
	}
	return list, nil
}

// Files finds the files of a split of the task below a directory, at the paths that clones of
// Hugging Face datasets use: DATASET/SPLIT, DATASET/data/SPLIT, or DATASET_SPLIT.
func (t *Task) Files(dir, split string) ([]string, error) {
	if stat, err := os.Stat(dir); err != nil {
		return nil, err
	} else if !stat.IsDir() {
		return nil, fmt.Errorf("%s is not a directory", dir)
	}
	starts := []string{filepath.Join(t.Dataset, split), filepath.Join(t.Dataset, "data", split),
		t.Dataset + "_" + split}
	for _, start := range starts {
		list, err := splitFiles(filepath.Join(dir, start))
		if err != nil || len(list) > 0 {
			return list, err
		}
	}
	return nil, fmt.Errorf("%s has no rows of the split %q of %s: want %s, followed by .jsonl or "+
		".parquet, or by -00000-of-00001.parquet and so on",
		dir, split, t.Dataset, strings.Join(starts, ", or "))
}

// splitName matches the part of a file name that follows the split: an extension, preceded by the
// shard number if there are shards, as on the Hugging Face Hub (older ones also have a hash).
var splitName = regexp.MustCompile(
	`^(?:-([0-9]{5})-of-([0-9]{5})(?:-[0-9a-f]+)?)?\.(?:jsonl(?:\.gz|\.zst)?|parquet)$`)

// splitFiles lists the files of a split, in order: START.jsonl, or START-00000-of-00002.parquet
// etc. Other names with this prefix are other splits, such as test_socratic.jsonl beside
// test.jsonl.
func splitFiles(start string) (list []string, err error) {
	entries, err := os.ReadDir(filepath.Dir(start))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	by, total := map[string]string{}, "" // files by shard number, and the number of shards
	for _, e := range entries {
		rest, ok := strings.CutPrefix(e.Name(), filepath.Base(start))
		name := splitName.FindStringSubmatch(rest)
		if !ok || name == nil {
			continue
		}
		file := filepath.Join(filepath.Dir(start), e.Name())
		if other, ok := by[name[1]]; ok {
			return nil, fmt.Errorf("%s and %s are named as the same rows: keep one of them",
				other, file)
		}
		if len(list) > 0 && name[2] != total {
			return nil, fmt.Errorf("%s and %s are named as shards of different sets: keep one set",
				list[0], file)
		}
		by[name[1]], total = file, name[2]
		list = append(list, file)
	}
	if err != nil || total == "" {
		return list, err
	}
	n, err := strconv.Atoi(total)
	for i := range n {
		if number := fmt.Sprintf("%05d", i); by[number] == "" {
			return nil, fmt.Errorf("%s-%s-of-%s is missing: want all shards of the split",
				start, number, total)
		}
	}
	if len(by) > n {
		return nil, fmt.Errorf("%s has %d files named as shards of %s: keep one set",
			start, len(by), total)
	}
	return list, err
}
