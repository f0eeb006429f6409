package jinja

import (
	"fmt"
	"strings"
	"time"
	"unicode/utf8"
)

// Template is a parsed template. It is safe for concurrent use.
type Template struct {
	name       string
	body       []statement
	generation bool
}

// Parse parses the source of a template; name is used in errors, which are of type
// [*Error].
func Parse(name, source string) (t *Template, err error) {
	defer recoverError(name, &err)
	if !utf8.ValidString(source) {
		fail(1, "the template is not valid UTF-8")
	}
	if len(source) > maxSource {
		fail(1, "the template has %d bytes, at most %d are read", len(source), maxSource)
	}
	p := &parser{tokens: lex(source)}
	body := p.statements()
	if p.at().kind != endToken {
		p.unexpected("the end of the template")
	}
	return &Template{name: name, body: body, generation: p.generation}, nil
}

// HasGeneration reports whether the template has generation blocks, which mark what the
// assistant says.
func (t *Template) HasGeneration() bool { return t.generation }

// Span is a range of bytes that does not include End.
type Span struct{ Start, End int }

// Rendering is the output of a template.
type Rendering struct {
	Text string
	// Generated are the parts of Text that generation blocks printed, in order.
	Generated []Span
}

// Limits bounds what a template may do. Zero values mean the defaults.
type Limits struct {
	// Steps is the number of evaluated expressions and statements. Default: 2 million.
	Steps int
	// Bytes is the total size of all texts and lists that it makes. Default: 256 MiB.
	Bytes int
	// Strict makes it an error to print undefined values.
	Strict bool
}

const (
	defaultSteps = 2_000_000
	defaultBytes = 1 << 28
	maxDepth     = 100     // of calls, and of values within values
	maxSource    = 1 << 18 // bytes of a template
	maxRange     = 100000  // elements of range(), as in Jinja's sandbox
)

// Render runs the template. Variables are none (nil), bool, int64, float64, string,
// [List] or [*Dict]. now is the time that strftime_now returns. Errors are of type
// [*Error].
func (t *Template) Render(variables map[string]any, now time.Time, limits Limits) (r Rendering, err error) {
	defer recoverError(t.name, &err)
	if limits.Steps == 0 {
		limits.Steps = defaultSteps
	}
	if limits.Bytes == 0 {
		limits.Bytes = defaultBytes
	}
	var out strings.Builder
	m := &machine{steps: limits.Steps, bytes: limits.Bytes, strict: limits.Strict, now: now, out: &out}
	top := &scope{vars: make(map[string]any, len(variables)), parent: &scope{vars: globals}}
	for name, value := range variables {
		top.vars[name] = value
	}
	m.run(t.body, top)
	return Rendering{Text: out.String(), Generated: m.generated}, nil
}

// An Error says what is wrong with a template, or why it could not be rendered.
type Error struct {
	Template string
	Line     int
	Problem  string
	// Raised says that the template itself refused its input, with raise_exception.
	Raised bool
}

func (e *Error) Error() string {
	if e.Raised {
		return fmt.Sprintf("template %s refuses, in line %d: %s", e.Template, e.Line, e.Problem)
	}
	return fmt.Sprintf("template %s, line %d: %s", e.Template, e.Line, e.Problem)
}

// fail ends parsing or rendering with an error. Inside of this package errors are panics,
// as they can come from every corner of an expression; recoverError is where they end.
func fail(line int, format string, args ...any) {
	panic(&Error{Line: line, Problem: fmt.Sprintf(format, args...)})
}

// recoverError turns a panic into an error, one of this package's own faults included.
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
