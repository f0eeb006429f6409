package jinja

import (
	"strings"
	"time"
)

type machine struct {
	Limits    // remaining Steps and Bytes
	line      int
	depth     int // of calls
	now       time.Time
	out       *strings.Builder
	captures  int // number of enclosing blocks that print into a variable
	generated []Span
	printed   map[*Dict]Span // as [Rendering.Printed]
	inElement bool           // within an iteration for a mapping
}

// scope holds the variables of a block. Variables of enclosing blocks are visible; an assignment
// shadows them.
type scope struct {
	vars   map[string]any
	parent *scope
}

func (s *scope) inner() *scope { return &scope{vars: map[string]any{}, parent: s} }

func (s *scope) get(name string) any {
	for ; s != nil; s = s.parent {
		if value, ok := s.vars[name]; ok {
			return value
		}
	}
	return &undefined{name}
}

func (m *machine) fail(format string, args ...any) { fail(m.line, format, args...) }

// step counts a step of the computation, and records its line for errors.
func (m *machine) step(line int) {
	m.line = line
	if m.Steps--; m.Steps < 0 {
		m.fail("the template was stopped: it took too many steps, perhaps in an endless loop")
	}
	if m.Steps%1024 == 0 && m.Context.Err() != nil {
		panic(&Error{Line: line, Problem: "the template was stopped", Cause: m.Context.Err()})
	}
}

// make charges bytes that are about to be allocated for strings and lists against the limit.
func (m *machine) make(bytes int) {
	if bytes < 0 || bytes > m.Bytes {
		m.fail("the template was stopped: its texts and lists are too large")
	}
	m.Bytes -= bytes
}

// enter guards against infinite recursion; the returned function ends the call.
func (m *machine) enter() func() {
	if m.depth++; m.depth > maxDepth {
		m.fail("calls are nested more than %d deep", maxDepth)
	}
	return func() { m.depth-- }
}

func (m *machine) print(s string) {
	m.make(len(s))
	m.out.WriteString(s)
}

func (m *machine) capture(body statement, s *scope) string {
	out := m.out
	m.out = &strings.Builder{}
	m.captures++
	body(m, s)
	printed := m.out.String()
	m.out = out
	m.captures--
	return printed
}

// iteration runs the body of a loop, and records its output if the element is a mapping.
func (m *machine) iteration(body statement, s *scope, element any) flow {
	dict, ok := element.(*Dict)
	if !ok || m.inElement || m.captures > 0 {
		return body(m, s)
	}
	m.inElement = true
	start := m.out.Len()
	next := body(m, s)
	m.inElement = false
	if _, before := m.printed[dict]; !before || m.out.Len() > start {
		m.printed[dict] = Span{start, m.out.Len()}
	}
	return next
}

func (m *machine) parts(value any, n int) []any {
	if n == 1 {
		return []any{value}
	}
	if length(value) != n {
		m.fail("%s cannot be unpacked to %d names", typeName(value), n)
	}
	return m.elements(value)
}
