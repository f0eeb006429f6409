package jinja

import (
	"fmt"
	"slices"
)

// The parser compiles each statement and expression to a function that executes or evaluates it.
type (
	statement  func(m *machine, s *scope) flow
	expression func(m *machine, s *scope) any
)

type flow int

const (
	proceed flow = iota
	breakLoop
	continueLoop
)

type parser struct {
	tokens     []token
	next       int
	depth      int  // of nesting
	loops      int  // number of enclosing loops
	macros     int  // number of enclosing macros
	generation bool // a generation block was found
}

func (p *parser) at() token { return p.tokens[p.next] }

// take returns the current token and advances to the next one, except at the end.
func (p *parser) take() token {
	t := p.tokens[p.next]
	if t.kind != endToken {
		p.next++
	}
	return t
}

func (p *parser) unexpected(wanted string) {
	t := p.at()
	found := fmt.Sprintf("%q", t.text)
	if t.kind == endToken {
		found = "the end of the template"
	}
	fail(t.line, "found %s, want %s", found, wanted)
}

// is reports whether the next token is a tag, name or operator with the given text.
func (p *parser) is(text string) bool { return p.tokens[p.next].is(text) }

func (t token) is(text string) bool {
	return t.text == text && t.kind != stringToken && t.kind != textToken
}

func (p *parser) skip(text string) bool {
	found := p.is(text)
	if found {
		p.next++
	}
	return found
}

func (p *parser) want(text string) {
	if !p.skip(text) {
		p.unexpected(fmt.Sprintf("%q", text))
	}
}

func (p *parser) name(wanted string) string {
	if p.at().kind != nameToken {
		p.unexpected(wanted)
	}
	return p.take().text
}

// deeper guards against unbounded nesting; the returned function ends one level.
func (p *parser) deeper() func() {
	if p.depth++; p.depth > maxNesting {
		fail(p.at().line, "more than %d levels of nesting", maxNesting)
	}
	return func() { p.depth-- }
}

// statements parses up to a block tag that begins with one of the words, or to the end. It stops
// after the {% of that tag.
func (p *parser) statements(until ...string) statement {
	defer p.deeper()()
	var list []statement
	run := func(m *machine, s *scope) flow {
		for _, run := range list {
			if next := run(m, s); next != proceed {
				return next
			}
		}
		return proceed
	}
	for {
		switch t := p.at(); {
		case t.kind == textToken:
			p.take()
			list = append(list, func(m *machine, _ *scope) flow {
				m.line = t.line
				m.print(t.text)
				return proceed
			})
		case p.skip("{{"):
			list = append(list, printing(p.tuple(p.expression), t.line))
			p.want("}}")
		case p.skip("{%"):
			if p.at().kind == nameToken && slices.Contains(until, p.at().text) {
				return run
			}
			list = append(list, p.block())
		case len(until) > 0:
			p.unexpected(fmt.Sprintf("{%% %s %%}", until[len(until)-1]))
		default:
			return run
		}
	}
}

func printing(value expression, line int) statement {
	return func(m *machine, s *scope) flow {
		v := value(m, s)
		m.line = line
		m.print(m.str(v))
		return proceed
	}
}

func (p *parser) block() statement {
	line := p.at().line
	switch word := p.name("the name of a block"); word {
	case "for":
		return p.loop(line)
	case "if":
		return p.conditional(line)
	case "set":
		return p.assignment(line)
	case "macro":
		return p.macro(line)
	case "generation":
		return p.generationBlock(line)
	case "with":
		return p.with(line)
	case "filter":
		var body statement
		value := p.filters(p.filter(func(m *machine, s *scope) any { return m.capture(body, s.inner()) }))
		p.want("%}")
		body = p.outsideLoops("endfilter")
		p.end("endfilter")
		return printing(value, line)
	case "break", "continue":
		if p.loops == 0 {
			fail(line, "%s outside of a loop", word)
		}
		p.want("%}")
		next := map[string]flow{"break": breakLoop, "continue": continueLoop}[word]
		return func(*machine, *scope) flow { return next }
	default:
		fail(line, "the block %q is not supported, want for, if, set, macro, with, filter, raw, "+
			"generation, break or continue", word)
		return nil
	}
}

func (p *parser) end(word string) {
	if !p.skip(word) {
		p.unexpected("{% " + word + " %}")
	}
	p.want("%}")
}

func (p *parser) loop(line int) statement {
	parenthesis := p.skip("(")
	names := []string{p.name("a name")}
	for p.skip(",") {
		names = append(names, p.name("a name"))
	}
	if parenthesis {
		p.want(")")
	}
	p.want("in")
	over := p.tuple(p.or)
	var condition expression
	if p.skip("if") {
		condition = p.expression()
	}
	p.want("%}")
	p.loops++
	body := p.statements("else", "endfor")
	p.loops--
	otherwise := func(*machine, *scope) flow { return proceed }
	if p.skip("else") {
		p.want("%}")
		otherwise = p.statements("endfor")
	}
	p.end("endfor")

	bind := func(m *machine, s *scope, element any) *scope {
		m.step(line)
		inner := s.inner()
		for i, part := range m.parts(element, len(names)) {
			inner.vars[names[i]] = part
		}
		return inner
	}
	return func(m *machine, s *scope) flow {
		value := over(m, s)
		m.line = line
		list := m.elements(value)
		if condition != nil {
			list = slices.DeleteFunc(slices.Clone(list), func(element any) bool {
				return !truth(condition(m, bind(m, s, element)))
			})
		}
		for i, element := range list {
			inner := bind(m, s, element)
			inner.vars["loop"] = &position{list: list, at: i}
			if m.iteration(body, inner, element) == breakLoop {
				return proceed
			}
		}
		if len(list) == 0 {
			return otherwise(m, s.inner())
		}
		return proceed
	}
}

func (p *parser) conditional(line int) statement {
	var conditions []expression
	var bodies []statement
	for {
		conditions = append(conditions, p.tuple(p.expression))
		p.want("%}")
		bodies = append(bodies, p.statements("elif", "else", "endif"))
		if !p.skip("elif") {
			break
		}
	}
	if p.skip("else") {
		p.want("%}")
		conditions = append(conditions, func(*machine, *scope) any { return true })
		bodies = append(bodies, p.statements("endif"))
	}
	p.end("endif")
	return func(m *machine, s *scope) flow {
		for i, condition := range conditions {
			m.step(line)
			if truth(condition(m, s)) {
				return bodies[i](m, s)
			}
		}
		return proceed
	}
}

// assignment parses a set block, which assigns a value to names or namespace attributes, or the
// output of the block to one name.
func (p *parser) assignment(line int) statement {
	type target struct{ name, attribute string }
	var targets []target
	for more := true; more; more = p.skip(",") {
		t := target{name: p.name("a name")}
		if p.skip(".") {
			t.attribute = p.name("the name of an attribute")
		}
		targets = append(targets, t)
	}
	var value expression
	switch {
	case p.skip("="):
		value = p.tuple(p.expression)
		p.want("%}")
	case len(targets) > 1:
		p.unexpected(`"="`)
	default:
		var body statement
		value = p.filters(func(m *machine, s *scope) any { return m.capture(body, s) })
		p.want("%}")
		body = p.outsideLoops("endset")
		p.end("endset")
		filtered := value
		value = func(m *machine, s *scope) any { return filtered(m, s.inner()) }
	}
	return func(m *machine, s *scope) flow {
		v := value(m, s)
		m.step(line)
		for i, part := range m.parts(v, len(targets)) {
			t := targets[i]
			if t.attribute == "" {
				s.vars[t.name] = part
				continue
			}
			ns, ok := s.get(t.name).(*namespace)
			if !ok {
				m.fail("the attribute %q of %s cannot be set: it is not a namespace",
					t.attribute, t.name)
			}
			ns.Set(t.attribute, part)
		}
		return proceed
	}
}

// with parses a block with variables of its own. Their values are those of the block around it.
func (p *parser) with(line int) statement {
	var names []string
	var values []expression
	for !p.skip("%}") {
		if len(names) > 0 {
			p.want(",")
		}
		names = append(names, p.name("a name"))
		p.want("=")
		values = append(values, p.expression())
	}
	body := p.statements("endwith")
	p.end("endwith")
	return func(m *machine, s *scope) flow {
		m.step(line)
		inner := s.inner()
		for i, value := range values {
			inner.vars[names[i]] = value(m, s)
		}
		return body(m, inner)
	}
}

func (p *parser) macro(line int) statement {
	name := p.name("the name of the macro")
	var params []string
	var defaults []expression // of the last params
	p.want("(")
	for !p.is(")") {
		if len(params) > 0 {
			p.want(",")
		}
		param := p.name("a parameter")
		params = append(params, param)
		if p.skip("=") {
			defaults = append(defaults, p.expression())
		} else if len(defaults) > 0 {
			fail(p.at().line, "parameter %q has no default, the one before it has", param)
		}
	}
	p.want(")")
	p.want("%}")
	p.macros++
	body := p.outsideLoops("endmacro")
	p.macros--
	p.end("endmacro")

	return func(m *machine, s *scope) flow {
		s.vars[name] = &function{name, func(c *call) any {
			defer m.enter()()
			c.bind(0, params...)
			inner := s.inner()
			for i, param := range params {
				inner.vars[param] = &undefined{"parameter " + param}
				if c.has(i) {
					inner.vars[param] = c.args[i]
				} else if at := i - (len(params) - len(defaults)); at >= 0 {
					inner.vars[param] = defaults[at](m, inner)
				}
			}
			return m.capture(body, inner)
		}}
		m.line = line
		return proceed
	}
}

// outsideLoops parses statements of a block, which cannot end the loops around the block.
func (p *parser) outsideLoops(end string) statement {
	loops := p.loops
	p.loops = 0
	body := p.statements(end)
	p.loops = loops
	return body
}

func (p *parser) generationBlock(line int) statement {
	if p.macros > 0 {
		fail(line, "a generation block within a macro: the position of its text is unknown")
	}
	p.generation = true
	p.want("%}")
	body := p.outsideLoops("endgeneration")
	p.end("endgeneration")
	return func(m *machine, s *scope) flow {
		m.step(line)
		if m.captures > 0 {
			m.fail("a generation block within a set block: the position of its text is unknown")
		}
		start := m.out.Len()
		body(m, s.inner())
		m.generated = append(m.generated, Span{start, m.out.Len()})
		return proceed
	}
}
