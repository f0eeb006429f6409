package jinja

import (
	"context"
	"strings"
	"time"
)

type machine struct {
	steps, bytes int // that are left
	depth        int // of calls
	strict       bool
	now          time.Time
	out          *strings.Builder
	captures     int // how many blocks around the place print into a variable
	generated    []Span
	printed      map[*Dict]Span // as [Rendering.Printed]
	inElement    bool           // the place is within an iteration for a mapping
	ctx          context.Context
}

func newMachine(limits Limits, now time.Time, out *strings.Builder) *machine {
	return &machine{steps: limits.Steps, bytes: limits.Bytes, strict: limits.Strict, now: now,
		out: out, ctx: limits.Context, printed: map[*Dict]Span{}}
}

// scope holds the variables of a block. Those of the blocks around it are seen, and hidden
// but not changed by an assignment.
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

func (m *machine) step(line int) {
	if m.steps--; m.steps < 0 {
		fail(line, tooMuchWork)
	}
	if m.steps%1024 == 0 && m.ctx.Err() != nil {
		panic(&Error{Line: line, Problem: "the template was stopped", Cause: m.ctx.Err()})
	}
}

const tooMuchWork = "the template was stopped: it computes too much, perhaps in a loop that does not end"

// make counts bytes of texts and lists before they are made.
func (m *machine) make(line, bytes int) {
	if bytes < 0 || bytes > m.bytes {
		fail(line, "the template was stopped: it makes too much text")
	}
	m.bytes -= bytes
}

func (m *machine) enter(line int) {
	if m.depth++; m.depth > maxDepth {
		fail(line, "more than %d calls within calls", maxDepth)
	}
}

func (m *machine) run(body []statement, s *scope) flow {
	for _, one := range body {
		if how := one.exec(m, s); how != goOn {
			return how
		}
	}
	return goOn
}

func (m *machine) capture(body []statement, s *scope) string {
	out := m.out
	m.out = &strings.Builder{}
	m.captures++
	m.run(body, s)
	printed := m.out.String()
	m.out = out
	m.captures--
	return printed
}

func (m *machine) print(line int, s string) {
	m.make(line, len(s))
	m.out.WriteString(s)
}

func (t *text) exec(m *machine, _ *scope) flow {
	m.print(t.line, t.text)
	return goOn
}

func (o *output) exec(m *machine, s *scope) flow {
	m.print(o.line, m.str(o.line, o.of.eval(m, s)))
	return goOn
}

func (c *conditional) exec(m *machine, s *scope) flow {
	for i, condition := range c.conditions {
		m.step(c.line)
		if truth(condition.eval(m, s)) {
			return m.run(c.bodies[i], s)
		}
	}
	if len(c.bodies) > len(c.conditions) {
		return m.run(c.bodies[len(c.conditions)], s)
	}
	return goOn
}

func (l leave) exec(*machine, *scope) flow { return l.how }

func (l *loop) exec(m *machine, s *scope) flow {
	list := l.filtered(m, s, m.elements(l.line, l.over.eval(m, s)))
	for i := range list {
		if l.iteration(m, s, &position{list: list, at: i}) == breakLoop {
			return goOn
		}
	}
	if len(list) == 0 {
		return m.run(l.otherwise, s.inner())
	}
	return goOn
}

func (l *loop) iteration(m *machine, s *scope, at *position) flow {
	m.step(l.line)
	inner := s.inner()
	inner.vars["loop"] = at
	l.bind(inner, at.list[at.at])
	element, ok := at.list[at.at].(*Dict)
	if !ok || m.inElement || m.captures > 0 {
		return m.run(l.body, inner)
	}
	m.inElement = true
	start := m.out.Len()
	how := m.run(l.body, inner)
	m.inElement = false
	if _, before := m.printed[element]; !before || m.out.Len() > start {
		m.printed[element] = Span{start, m.out.Len()}
	}
	return how
}

func (l *loop) filtered(m *machine, s *scope, list List) List {
	if l.condition == nil {
		return list
	}
	var kept List
	for _, element := range list {
		m.step(l.line)
		inner := s.inner()
		l.bind(inner, element)
		if truth(l.condition.eval(m, inner)) {
			kept = append(kept, element)
		}
	}
	return kept
}

// bind gives an element its name, or the parts of an element theirs.
func (l *loop) bind(s *scope, element any) {
	if len(l.targets) == 1 {
		s.vars[l.targets[0]] = element
		return
	}
	for i, part := range unpack(l.line, element, len(l.targets)) {
		s.vars[l.targets[i]] = part
	}
}

func unpack(line int, value any, n int) List {
	list, ok := value.(List)
	if !ok || len(list) != n {
		fail(line, "%s cannot be divided among %d names", typeName(value), n)
	}
	return list
}

func (a *assignment) exec(m *machine, s *scope) flow {
	m.step(a.line)
	value := a.value.eval(m, s)
	if len(a.targets) == 1 {
		a.targets[0].assign(m, a.line, s, value)
		return goOn
	}
	for i, part := range unpack(a.line, value, len(a.targets)) {
		a.targets[i].assign(m, a.line, s, part)
	}
	return goOn
}

func (b *blockAssignment) exec(m *machine, s *scope) flow {
	m.step(b.line)
	inner := s.inner()
	var value any = m.capture(b.body, inner)
	if f, ok := b.filter.(*filter); ok {
		value = f.apply(m, inner, value)
	}
	b.target.assign(m, b.line, s, value)
	return goOn
}

func (t target) assign(m *machine, line int, s *scope, value any) {
	if t.attribute == "" {
		s.vars[t.name] = value
		return
	}
	ns, ok := s.get(t.name).(*namespace)
	if !ok {
		fail(line, "the attribute %q of %s cannot be set: only those of a namespace can", t.attribute, t.name)
	}
	ns.Set(t.attribute, value)
}

func (g *generation) exec(m *machine, s *scope) flow {
	m.step(g.line)
	if m.captures > 0 {
		fail(g.line, "a generation block within a set block: where its text stands in the end cannot be told")
	}
	start := m.out.Len()
	m.run(g.body, s.inner())
	m.generated = append(m.generated, Span{start, m.out.Len()})
	return goOn
}

func (d *macro) exec(m *machine, s *scope) flow {
	s.vars[d.name] = &function{d.name, func(c *calling) any { return d.call(c, s) }}
	return goOn
}

func (d *macro) call(c *calling, outside *scope) any {
	c.m.enter(c.line)
	defer func() { c.m.depth-- }()
	values := c.bind(0, d.params...)
	inner := outside.inner()
	for i, name := range d.params {
		if values[i] != (absent{}) {
			inner.vars[name] = values[i]
			continue
		}
		inner.vars[name] = &undefined{"parameter " + name}
		if at := i - (len(d.params) - len(d.defaults)); at >= 0 {
			inner.vars[name] = d.defaults[at].eval(c.m, inner)
		}
	}
	return c.m.capture(d.body, inner)
}
