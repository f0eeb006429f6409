// Package tasks asks language models the questions of published benchmarks and judges the answers.
// Prompts, tokenization at the boundary of context and continuation, metrics and standard errors
// are those of EleutherAI's lm-eval 0.4.13, so that results are comparable with its results.
//
// A file (definitions/*.toml) describes each task: templates that turn a row of data into a
// question, and names of metrics. The package does not run models: it makes requests in token ids,
// and receives log-probabilities of continuations or generated texts.
package tasks

import (
	"embed"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"strings"

	"github.com/cage-qat/cage/host/data/chat/jinja"
	"github.com/cage-qat/cage/internal/lists"
	"github.com/cage-qat/cage/internal/vfs"
)

// Values of [Task].Kind.
const (
	Choices      = "choices"      // choose the likeliest of several continuations
	Continuation = "continuation" // score a continuation
	Generation   = "generation"   // generate a text
	Text         = "text"         // score a whole text, window by window
)

// Values of [Task].Metrics.
const (
	Acc        = "acc"         // the likeliest choice is right; greedy decoding gives the continuation
	AccNorm    = "acc_norm"    // the same by log-probability per character of the choice
	Perplexity = "perplexity"  // for continuations: exp(−mean log-probability)
	ExactMatch = "exact_match" // the match of a filter in the text equals the target

	// Metrics of generated texts with several targets, which no file can describe.
	Contained    = "contained"     // share of the targets that are in the text, ignoring case
	ContainedAny = "contained_any" // whether any of the targets is

	// Metrics of whole texts: exp(−log-probability per word), with words split at white space.
	WordPerplexity = "word_perplexity"
	BytePerplexity = "byte_perplexity" // the same per byte
	BitsPerByte    = "bits_per_byte"
)

// Task is a benchmark, as described by its file.
type Task struct {
	Name    string
	Version string // lm-eval's version of the task; results of other versions are not comparable
	Paper   string
	Chance  float64 // expected result of random guessing
	Kind    string
	// Dataset is the directory of the rows, and Columns lists the columns that the rows must have.
	Dataset string
	Columns []string
	Split   string // the split with the questions
	// ExampleSplit is the split from which few-shot examples are drawn; "" if there is none.
	ExampleSplit  string
	Shots         int  // default number of few-shot examples
	ExtraExample  bool // an additional example is drawn, as lm-eval does for this task
	FixedExamples bool // examples come from a file; all questions get the first ones in it

	// Templates, in the language of package jinja. There may be one question, or one for each choice.
	Question  []string
	Choice    []string
	ChoicesOf string // instead of Choice: the column with the list of choices, such as "choices.text"
	Target    string // the continuation, or the answer of generated texts
	Gold      string // index of the right choice
	GoldOf    string // the column with the list in which the rendered gold is looked up
	Delimiter string // between question and answer; a space by default

	Strip bool        // remove white space around questions and choices
	Clean [][2]string // patterns in questions and choices with their replacements, applied in order

	Metrics    []string
	Until      []string // strings that end an answer
	MaxTokens  int
	Filters    []Filter
	Ignore     []string // patterns removed from texts before they are compared, in order
	IgnoreCase bool     // ignore case when comparing

	clean, ignore []*regexp.Regexp
	templates     map[string]*jinja.Template // by their sources
	hash          string                     // hash of the file
}

// Hash returns the SHA-256 of the task's file, in hexadecimal.
func (t *Task) Hash() string { return t.hash }

// Filter extracts the answer from a generated text.
type Filter struct {
	Name    string
	Pattern string
	Last    bool // take the last match, not the first

	pattern *regexp.Regexp
}

//go:embed definitions/*.toml
var definitions embed.FS

// Names returns the names of the built-in tasks.
func Names() []string {
	entries, err := fs.Glob(definitions, "definitions/*.toml")
	if err != nil {
		panic(err) // the pattern is a constant
	}
	return lists.Map(entries, func(e string) string {
		return strings.TrimSuffix(path.Base(e), ".toml")
	})
}

// Open returns the built-in task named spec or, if spec ends in .toml, the task that the file
// describes.
func Open(spec string) (*Task, error) {
	if strings.HasSuffix(spec, ".toml") {
		text, err := vfs.At(spec).ReadFile()
		if err != nil {
			return nil, err
		}
		return Parse(spec, text)
	}
	text, err := definitions.ReadFile("definitions/" + spec + ".toml")
	if err != nil {
		return nil, fmt.Errorf("there is no task %q: want one of %s, or a file that ends in .toml",
			spec, strings.Join(Names(), ", "))
	}
	return Parse(spec+".toml", text)
}
