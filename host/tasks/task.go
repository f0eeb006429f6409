package tasks

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/BurntSushi/toml"

	"github.com/cage-qat/cage/internal/regular"
)

// The kinds of tasks.
const (
	Choices      = "choices"      // asks which of several continuations is the likeliest
	Continuation = "continuation" // asks how likely a continuation is
	Generation   = "generation"   // asks for a text that the model writes
	Text         = "text"         // asks how likely a whole text is, window by window
)

// The metrics.
const (
	Acc        = "acc"         // the likeliest choice is right; for a continuation, all its tokens are the likeliest
	AccNorm    = "acc_norm"    // the same by log-probability per character of the choice
	Perplexity = "perplexity"  // for continuations: exp of minus their mean log-probability
	ExactMatch = "exact_match" // what a filter finds in the text is the target

	WordPerplexity = "word_perplexity" // for texts: exp of minus the log-probability per word, split at white space
	BytePerplexity = "byte_perplexity" // the same per byte
	BitsPerByte    = "bits_per_byte"
)

// Task is a benchmark, as described by its file.
type Task struct {
	Name    string  `toml:"name"`
	Version string  `toml:"version"` // lm-eval's version of the task, which decides whether results can be compared
	Paper   string  `toml:"paper"`
	Chance  float64 `toml:"chance"` // expected result of guessing
	Kind    string  `toml:"kind"`
	// Dataset is the folder of the rows, and Columns lists the columns that they must have.
	Dataset string   `toml:"dataset"`
	Columns []string `toml:"columns"`
	Split   string   `toml:"split"`         // the split with the questions
	From    string   `toml:"fewshot_split"` // the split from which examples are drawn
	Shots   int      `toml:"shots"`         // number of examples before a question
	Spare   bool     `toml:"spare_example"` // one more example is drawn, as lm-eval does for this task
	Fixed   bool     `toml:"fixed_shots"`   // examples come from a file; all questions get the first ones in it

	// Templates, in the language of package jinja. Question is a list if each choice has a question of its own.
	Question  []string `toml:"question"`
	Choice    []string `toml:"choices"`
	ChoicesOf string   `toml:"choices_of"` // instead, the column with the list of choices, such as "choices.text"
	Target    string   `toml:"target"`     // the continuation, or the answer of generated texts
	Gold      string   `toml:"gold"`       // index of the right choice
	GoldOf    string   `toml:"gold_of"`    // the column with the list in which gold is looked up
	Delimiter *string  `toml:"delimiter"`  // between question and answer; a space by default

	Strip bool        `toml:"strip"` // remove white space around questions and choices
	Clean [][2]string `toml:"clean"` // patterns in questions and choices, and their replacements, applied one after the other

	Metrics   []string `toml:"metrics"`
	Until     []string `toml:"until"` // texts that end an answer
	MaxTokens int      `toml:"max_tokens"`
	Filters   []Filter `toml:"filters"`
	Ignore    []string `toml:"ignore"`      // patterns removed from texts before they are compared, one after the other
	AnyCase   bool     `toml:"ignore_case"` // ignore case when comparing

	clean, ignore []*regexp.Regexp
	hash          string // of the file
}

// Hash is the SHA-256 of the task's file, in hexadecimal.
func (t *Task) Hash() string { return t.hash }

// Filter finds the answer in a generated text.
type Filter struct {
	Name    string `toml:"name"`
	Pattern string `toml:"pattern"`
	Last    bool   `toml:"last"` // take the last match, not the first

	pattern *regexp.Regexp
}

//go:embed definitions/*.toml
var definitions embed.FS

// Names lists the built-in tasks.
func Names() []string {
	entries, err := fs.Glob(definitions, "definitions/*.toml")
	if err != nil {
		panic(err) // the pattern is a constant
	}
	var names []string
	for _, e := range entries {
		names = append(names, strings.TrimSuffix(path.Base(e), ".toml"))
	}
	return names
}

// ErrNone is wrapped by the error of [Open] for a name that no task has.
var ErrNone = errors.New("there is no task")

// Open returns the task with the given name or, if spec ends in .toml, the task described by that file.
func Open(spec string) (*Task, error) {
	if strings.HasSuffix(spec, ".toml") {
		text, err := regular.ReadFile(spec)
		if err != nil {
			return nil, err
		}
		return Parse(spec, text)
	}
	text, err := definitions.ReadFile("definitions/" + spec + ".toml")
	if err != nil {
		return nil, fmt.Errorf("%w %q: want one of %s, or a file that ends in .toml", ErrNone, spec, strings.Join(Names(), ", "))
	}
	return Parse(spec+".toml", text)
}

// Parse parses the description of a task; name is for messages.
func Parse(name string, text []byte) (*Task, error) {
	sum := sha256.Sum256(text)
	t := &Task{hash: hex.EncodeToString(sum[:])}
	decoded, err := toml.Decode(string(text), t)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if unknown := decoded.Undecoded(); len(unknown) > 0 {
		return nil, fmt.Errorf("%s: there is no key %s", name, unknown[0])
	}
	if t.Dataset == "" {
		t.Dataset = t.Name
	}
	if t.Delimiter == nil {
		space := " "
		t.Delimiter = &space
	}
	if err := t.check(); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return t, nil
}

// metricsOf are the metrics of each kind.
var metricsOf = map[string][]string{Choices: {Acc, AccNorm}, Continuation: {Perplexity, Acc}, Generation: {ExactMatch}, Text: {WordPerplexity, BytePerplexity, BitsPerByte}}

func (t *Task) check() error {
	allowed, ok := metricsOf[t.Kind]
	switch {
	case t.Name == "" || strings.ContainsAny(t.Name, `/\`):
		return fmt.Errorf("name %q: want one that can be a file's", t.Name)
	case !ok:
		return fmt.Errorf("kind %q: want %s, %s, %s or %s", t.Kind, Choices, Continuation, Generation, Text)
	case len(t.Metrics) == 0:
		return fmt.Errorf("metrics: want some of %s", strings.Join(allowed, ", "))
	case len(t.Question) == 0 || t.Split == "":
		return fmt.Errorf("question and split are missing")
	case t.Shots < 0 || t.MaxTokens < 0:
		return fmt.Errorf("shots %d, max_tokens %d: none may be negative", t.Shots, t.MaxTokens)
	}
	for _, m := range t.Metrics {
		if !slices.Contains(allowed, m) {
			return fmt.Errorf("metrics: %q is none of %s: %s", m, t.Kind, strings.Join(allowed, ", "))
		}
	}
	if err := t.checkKind(); err != nil {
		return err
	}
	return t.compile()
}

func (t *Task) checkKind() error {
	switch t.Kind {
	case Choices:
		several := len(t.Question) > 1
		if t.Gold == "" || several == (t.Target == "") || several == (len(t.Choice) > 0 || t.ChoicesOf != "") {
			return fmt.Errorf("choices: want gold, and either choices (or choices_of), or several questions and target")
		}
	case Continuation, Generation:
		if len(t.Question) != 1 || t.Target == "" {
			return fmt.Errorf("%s: want one question, and target", t.Kind)
		}
	}
	if t.Kind == Text && (len(t.Question) != 1 || t.Target != "" || t.Shots > 0) {
		return fmt.Errorf("%s: want one question, which is the text, and neither target nor shots", Text)
	}
	if (t.Kind == Generation) != (len(t.Filters) > 0) {
		return fmt.Errorf("filters belong to tasks of the kind %s, which have some", Generation)
	}
	return nil
}

// compile parses patterns.
func (t *Task) compile() error {
	for i, c := range t.Clean {
		p, err := regexp.Compile(c[0])
		if err != nil {
			return fmt.Errorf("clean[%d]: %w", i, err)
		}
		t.clean = append(t.clean, p)
	}
	for i, source := range t.Ignore {
		p, err := regexp.Compile(pythonEnd(source))
		if err != nil {
			return fmt.Errorf("ignore[%d]: %w", i, err)
		}
		t.ignore = append(t.ignore, p)
	}
	for i := range t.Filters {
		p, err := regexp.Compile(t.Filters[i].Pattern)
		if err != nil {
			return fmt.Errorf("filters[%d]: %w", i, err)
		}
		t.Filters[i].pattern = p
	}
	return nil
}
