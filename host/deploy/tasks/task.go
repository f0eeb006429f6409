package tasks

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"strings"

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
