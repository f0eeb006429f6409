// Package jinja renders chat templates: programs in the template language Jinja that convert a list
// of messages to text. Models publish them in tokenizer_config.json or chat_template.jinja.
//
// It contains an interpreter for the part of Jinja that such templates use, in the same environment
// as the transformers library: trim_blocks and lstrip_blocks are on, one newline at the end of the
// source is dropped, loops have break and continue, the output of a generation block is recorded,
// and tojson writes the same as Python's json.dumps. Inheritance, includes, call blocks and
// autoescape are parse errors; filters and methods that are not in its tables fail when they are
// evaluated.
//
// gonja v2.9.1 renders 53 of 93 snippets of templates differently from Jinja2 (white space between
// tags, order of keys, None, slices and case of text beyond ASCII), has no generation blocks, and
// its time and memory cannot be bounded; hence this interpreter.
//
// A template is untrusted code. It only gets the given variables, cannot change them, and is
// stopped with an error if it computes or writes too much. Package chat decides what the messages
// mean, and which of them count in the loss.
package jinja

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"strings"
	"time"
	"unicode/utf8"
)

const (
	defaultSteps = 2_000_000
	defaultBytes = 1 << 28
	maxDepth     = 100     // of calls, and of values within values
	maxNesting   = 200     // of expressions within expressions and blocks within blocks
	maxSource    = 1 << 18 // bytes of a template
	maxRange     = 100000  // elements of range(), as in Jinja's sandbox
)

// Template is a parsed template. It is safe for concurrent use.
type Template struct {
	name       string
	body       statement
	generation bool
}

// Parse parses the source of a template; name is used in errors, which are of type [*Error].
func Parse(name, source string) (t *Template, err error) {
	defer recoverError(name, &err)
	if !utf8.ValidString(source) {
		fail(1, "the template is not valid UTF-8")
	}
	if len(source) > maxSource {
		fail(1, "the template has %d bytes; the limit is %d", len(source), maxSource)
	}
	p := &parser{tokens: lex(source)}
	body := p.statements()
	if p.at().kind != endToken {
		p.unexpected("the end of the template")
	}
	return &Template{name: name, body: body, generation: p.generation}, nil
}

// HasGeneration reports whether the template has generation blocks, which mark the assistant's
// text.
func (t *Template) HasGeneration() bool { return t.generation }

// Span is the range of bytes [Start, End).
type Span struct{ Start, End int }

// Rendering is the output of a template.
type Rendering struct {
	Text string
	// Generated are the parts of Text that generation blocks printed, in order.
	Generated []Span
	// Steps is the number of steps used, out of [Limits.Steps].
	Steps int
	// Printed maps each mapping over which a loop iterated to the part of Text that this iteration
	// printed; if it has several, to the last nonempty one. Loops within macros, set blocks and
	// such iterations are not recorded.
	Printed map[*Dict]Span
}

// Limits bounds the work of a template. Zero values mean the defaults.
type Limits struct {
	// Steps is the number of evaluated expressions and statements. Default: 2 million.
	Steps int
	// Bytes is the total size of all texts and lists created. Default: 256 MiB.
	Bytes int
	// Strict makes it an error to print undefined values.
	Strict bool
	// Context, if not nil, stops the rendering with an error when it is done.
	Context context.Context
}

// Render runs the template. Variables are none (nil), bool, int64, float64, string, []any or
// [*Dict]. now is the time that strftime_now returns. Errors are of type [*Error].
func (t *Template) Render(
	variables map[string]any, now time.Time, limits Limits,
) (r Rendering, err error) {
	defer recoverError(t.name, &err)
	limits.Steps = cmp.Or(limits.Steps, defaultSteps)
	limits.Bytes = cmp.Or(limits.Bytes, defaultBytes)
	limits.Context = cmp.Or(limits.Context, context.Background())
	var out strings.Builder
	m := &machine{Limits: limits, now: now, out: &out, printed: map[*Dict]Span{}}
	top := (&scope{vars: globals}).inner()
	maps.Copy(top.vars, variables)
	t.body(m, top)
	return Rendering{
		Text: out.String(), Generated: m.generated, Steps: limits.Steps - m.Steps, Printed: m.printed,
	}, nil
}

// An Error reports a fault in a template, or why it could not be rendered.
type Error struct {
	Template string
	Line     int
	Problem  string
	// Raised reports that the template itself rejected its input, with raise_exception.
	Raised bool
	// Cause, if not nil, is the external error that stopped the rendering.
	Cause error
}

func (e *Error) Unwrap() error { return e.Cause }

func (e *Error) Error() string {
	if e.Raised {
		return fmt.Sprintf("template %s, line %d: the template raised %q", e.Template, e.Line, e.Problem)
	}
	return fmt.Sprintf("template %s, line %d: %s", e.Template, e.Line, e.Problem)
}

// fail ends parsing or rendering with an error. Inside this package errors are panics, as they can
// occur anywhere in an expression; recoverError recovers them.
func fail(line int, format string, args ...any) {
	panic(&Error{Line: line, Problem: fmt.Sprintf(format, args...)})
}

// recoverError converts a panic to an error, including faults of this package itself.
func recoverError(name string, err *error) {
	switch problem := recover().(type) {
	case nil:
	case *Error:
		problem.Template = name
		*err = problem
	default:
		*err = &Error{Template: name, Problem: fmt.Sprintf("the interpreter failed: %v", problem)}
	}
}
