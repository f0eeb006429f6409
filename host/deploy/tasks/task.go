// Package tasks asks language models the questions of published benchmarks, and judges their answers. Prompts, the
// division into tokens at borders, metrics and standard errors are those of EleutherAI's lm-eval 0.4.13, so that
// results can be compared with its results.
//
// A task is described by a file (definitions/*.toml): templates that turn a row of data into a question, and names of
// metrics. The package knows no model: it makes requests in token ids, and receives how likely continuations are, or
// texts.
package tasks

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"strings"

	"github.com/cage-qat/cage/internal/vfs"
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
	Name    string
	Version string // lm-eval's version of the task, which decides whether results can be compared
	Paper   string
	Chance  float64 // expected result of guessing
	Kind    string
	// Dataset is the folder of the rows, and Columns lists the columns that they must have.
	Dataset string
	Columns []string
	Split   string // the split with the questions
	From    string // the split from which examples are drawn
	Shots   int    // number of examples before a question
	Spare   bool   // one more example is drawn, as lm-eval does for this task
	Fixed   bool   // examples come from a file; all questions get the first ones in it

	// Templates, in the language of package jinja. Question is a list if each choice has a question of its own.
	Question  []string
	Choice    []string
	ChoicesOf string // instead, the column with the list of choices, such as "choices.text"
	Target    string // the continuation, or the answer of generated texts
	Gold      string // index of the right choice
	GoldOf    string // the column with the list in which gold is looked up
	Delimiter string // between question and answer; a space by default

	Strip bool        // remove white space around questions and choices
	Clean [][2]string // patterns in questions and choices, and their replacements, applied one after the other

	Metrics   []string
	Until     []string // texts that end an answer
	MaxTokens int
	Filters   []Filter
	Ignore    []string // patterns removed from texts before they are compared, one after the other
	AnyCase   bool     // ignore case when comparing

	clean, ignore []*regexp.Regexp
	hash          string // of the file
}

// Hash is the SHA-256 of the task's file, in hexadecimal.
func (t *Task) Hash() string { return t.hash }

// Filter finds the answer in a generated text.
type Filter struct {
	Name    string
	Pattern string
	Last    bool // take the last match, not the first

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
		text, err := vfs.ReadRegular(spec)
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
