package jinja

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/cage-qat/cage/internal/lists"
)

// tuple parses an element, or a comma-separated tuple.
func (p *parser) tuple(element func() expression) expression {
	first := element()
	line := p.at().line
	if !p.is(",") {
		return first
	}
	items := []expression{first}
	for p.skip(",") && !p.is("}}") && !p.is("%}") && !p.is(")") {
		items = append(items, element())
	}
	return tupleOf(items, line)
}

func tupleOf(items []expression, line int) expression {
	list := listOf(items, line)
	return func(m *machine, s *scope) any { return tuple(list(m, s).([]any)) }
}

func listOf(items []expression, line int) expression {
	return func(m *machine, s *scope) any {
		list := lists.Map(items, func(item expression) any { return item(m, s) })
		m.line = line
		m.make(16 * len(list))
		return list
	}
}

// expression parses an expression of the lowest precedence: "a if b else c".
func (p *parser) expression() expression {
	defer p.deeper()()
	value := p.or()
	for p.is("if") {
		line := p.take().line
		then, condition := value, p.or()
		otherwise := expression(func(*machine, *scope) any {
			return &undefined{"a choice without else"}
		})
		if p.skip("else") {
			otherwise = p.expression()
		}
		value = func(m *machine, s *scope) any {
			m.step(line)
			if truth(condition(m, s)) {
				return then(m, s)
			}
			return otherwise(m, s)
		}
	}
	return value
}

func (p *parser) or() expression  { return p.logical("or", true, p.and) }
func (p *parser) and() expression { return p.logical("and", false, p.not) }

// logical parses operands of "and" or "or". If the truth of the left one is decided, it is the
// result.
func (p *parser) logical(operator string, decided bool, operand func() expression) expression {
	value := operand()
	for p.skip(operator) {
		left, right := value, operand()
		value = func(m *machine, s *scope) any {
			if v := left(m, s); truth(v) == decided {
				return v
			}
			return right(m, s)
		}
	}
	return value
}

func negated(of expression) expression {
	return func(m *machine, s *scope) any { return !truth(of(m, s)) }
}

func (p *parser) not() expression {
	defer p.deeper()()
	if p.skip("not") {
		return negated(p.not())
	}
	return p.comparison()
}

func (p *parser) comparison() expression {
	first, line := p.sum(), p.at().line
	var operators []string
	var others []expression
	for {
		switch t := p.at(); {
		case t.kind == operatorToken && compares[t.text] != nil, p.is("in"):
			operators = append(operators, p.take().text)
		case p.is("not") && p.tokens[p.next+1].is("in"):
			p.next += 2
			operators = append(operators, "not in")
		case len(others) == 0:
			return first
		default:
			return func(m *machine, s *scope) any {
				left := first(m, s)
				for i, other := range others {
					right := other(m, s)
					m.step(line)
					if !compares[operators[i]](m, left, right) {
						return false
					}
					left = right
				}
				return true
			}
		}
		others = append(others, p.sum())
	}
}

func (p *parser) sum() expression     { return p.chain(p.concat, "+", "-") }
func (p *parser) concat() expression  { return p.chain(p.product, "~") }
func (p *parser) product() expression { return p.chain(p.power, "*", "/", "//", "%") }
func (p *parser) power() expression   { return p.chain(p.filtered, "**") }

// chain parses a left-associative chain of operators of one precedence.
func (p *parser) chain(operand func() expression, operators ...string) expression {
	value := operand()
	for p.at().kind == operatorToken && slices.Contains(operators, p.at().text) {
		op := p.take()
		left, right := value, operand()
		value = func(m *machine, s *scope) any {
			a, b := left(m, s), right(m, s)
			m.step(op.line)
			return m.binary(op.text, a, b)
		}
	}
	return value
}

func (p *parser) filtered() expression {
	value := p.unary()
	for {
		switch {
		case p.is("|"):
			value = p.filters(value)
		case p.skip("is"):
			value = p.test(value)
		case p.is("("):
			value = p.call(value)
		default:
			return value
		}
	}
}

func (p *parser) unary() expression {
	defer p.deeper()()
	line := p.at().line
	switch {
	case p.skip("-"):
		of := p.unary()
		return func(m *machine, s *scope) any {
			value := of(m, s)
			m.step(line)
			if x, ok := value.(float64); ok {
				return -x
			}
			if _, _, kind := asNumber(value); kind != 'i' {
				m.fail("%s cannot be negated", typeName(value))
			}
			return m.binary("-", int64(0), value)
		}
	case p.skip("+"):
		return p.unary()
	}
	return p.postfix(p.primary())
}

func (p *parser) postfix(of expression) expression {
	for {
		line, object := p.at().line, of
		switch {
		case p.skip("."):
			if p.at().kind == numberToken {
				of = element(object, p.primary(), line)
				continue
			}
			name := p.name("the name of an attribute")
			of = func(m *machine, s *scope) any {
				value := object(m, s)
				m.step(line)
				if f := method(value, name); f != nil { // take precedence over keys, as in Python
					return f
				}
				return m.attribute(value, name)
			}
		case p.skip("["):
			of = p.subscript(of, line)
		case p.is("("):
			of = p.call(of)
		default:
			return of
		}
	}
}

func element(of, key expression, line int) expression {
	return func(m *machine, s *scope) any {
		object, k := of(m, s), key(m, s)
		m.step(line)
		return m.element(object, k)
	}
}

// subscript parses "key]" or "start:stop:step]".
func (p *parser) subscript(of expression, line int) expression {
	var parts [3]expression
	n := 0
	for ; n < 3; n++ {
		if !p.is(":") && !p.is("]") {
			parts[n] = p.expression()
		}
		if !p.skip(":") {
			break
		}
	}
	p.want("]")
	if n == 0 {
		if parts[0] == nil {
			fail(line, "an index is missing between [ and ]")
		}
		return element(of, parts[0], line)
	}
	return func(m *machine, s *scope) any {
		object := of(m, s)
		var values [3]any
		for i, part := range parts {
			if part != nil {
				values[i] = part(m, s)
			}
		}
		m.step(line)
		return m.slice(object, values)
	}
}

func (p *parser) call(of expression) expression {
	args, line := p.arguments(), p.at().line
	return func(m *machine, s *scope) any {
		value := of(m, s)
		m.line = line
		f, ok := value.(*function)
		if !ok {
			m.fail("%s cannot be called", typeName(value))
		}
		c := args(m, s)
		m.step(line)
		c.name = f.name
		return f.run(c)
	}
}

// arguments parses a call's optional arguments, including the parentheses.
func (p *parser) arguments() func(m *machine, s *scope) *call {
	var positional, named []expression
	var names []string
	if p.skip("(") {
		p.commaSeparated(")", func() {
			switch {
			case p.at().kind == nameToken && p.tokens[p.next+1].is("="):
				names = append(names, p.take().text)
				p.take()
				named = append(named, p.expression())
			case len(named) > 0:
				p.unexpected("a named argument, as those before it")
			default:
				positional = append(positional, p.expression())
			}
		})
	}
	return func(m *machine, s *scope) *call {
		c := &call{machine: m, names: names}
		for _, a := range positional {
			c.positional = append(c.positional, a(m, s))
		}
		for _, a := range named {
			c.named = append(c.named, a(m, s))
		}
		return c
	}
}

// commaSeparated parses elements up to a closing bracket; a trailing comma is allowed.
func (p *parser) commaSeparated(end string, element func()) {
	for first := true; !p.skip(end); first = false {
		if !first {
			p.want(",")
			if p.skip(end) {
				return
			}
		}
		element()
	}
}

func (p *parser) filters(value expression) expression {
	for p.skip("|") {
		value = p.filter(value)
	}
	return value
}

func (p *parser) filter(value expression) expression {
	line := p.at().line
	return operation(filters, "filter", p.name("the name of a filter"), line, value, p.arguments())
}

// operation applies a filter or a test. An unknown one is an error only when it is evaluated, as in
// Jinja.
func operation(table map[string]builtin, kind, name string, line int, input expression,
	args func(*machine, *scope) *call) expression {
	return func(m *machine, s *scope) any {
		value := input(m, s)
		c := args(m, s)
		m.step(line)
		return c.apply(table, kind, name, value)
	}
}

func (p *parser) test(input expression) expression {
	not := p.skip("not")
	line := p.at().line
	name := p.name("the name of a test")
	args := p.arguments
	if !p.is("(") && p.beginsArgument() {
		value := p.postfix(p.primary())
		args = func() func(*machine, *scope) *call {
			return func(m *machine, s *scope) *call {
				return &call{machine: m, positional: []any{value(m, s)}}
			}
		}
	}
	value := operation(tests, "test", name, line, input, args())
	if not {
		return negated(value)
	}
	return value
}

// beginsArgument reports whether a test argument without parentheses follows, as in "is equalto 3".
func (p *parser) beginsArgument() bool {
	switch t := p.at(); t.kind {
	case nameToken:
		return !slices.Contains([]string{"else", "or", "and", "if", "is", "in", "not"}, t.text)
	case stringToken, numberToken:
		return true
	}
	return p.is("[") || p.is("{")
}

var literals = map[string]any{
	"true": true, "True": true, "false": false, "False": false, "none": nil, "None": nil,
}

func constant(value any) expression { return func(*machine, *scope) any { return value } }

func (p *parser) primary() expression {
	t := p.at()
	switch t.kind {
	case nameToken:
		p.take()
		if value, ok := literals[t.text]; ok {
			return constant(value)
		}
		return func(m *machine, s *scope) any {
			m.step(t.line)
			value := s.get(t.text)
			_, missing := value.(*undefined)
			if missing && slices.Contains([]string{"varargs", "kwargs", "caller"}, t.text) {
				m.fail("%s, which Jinja gives to macros, is not supported", t.text)
			}
			return value
		}
	case stringToken:
		var text strings.Builder
		for p.at().kind == stringToken {
			text.WriteString(p.take().text)
		}
		return constant(text.String())
	case numberToken:
		value, err := parseNumber(p.take().text)
		if err != nil {
			fail(t.line, "%v", err)
		}
		return constant(value)
	}
	switch {
	case p.skip("("):
		if p.skip(")") {
			return tupleOf(nil, t.line)
		}
		value := p.tuple(p.expression)
		p.want(")")
		return value
	case p.skip("["):
		var items []expression
		p.commaSeparated("]", func() { items = append(items, p.expression()) })
		return listOf(items, t.line)
	case p.skip("{"):
		return p.mapping(t.line)
	}
	p.unexpected("a value")
	return nil
}

func (p *parser) mapping(line int) expression {
	var keys, values []expression
	p.commaSeparated("}", func() {
		keys = append(keys, p.expression())
		p.want(":")
		values = append(values, p.expression())
	})
	return func(m *machine, s *scope) any {
		dict := &Dict{}
		for i, key := range keys {
			name, ok := key(m, s).(string)
			m.line = line
			if !ok {
				m.fail("a key of a mapping must be a string")
			}
			dict.Set(name, values[i](m, s))
		}
		m.line = line
		m.make(64 * len(keys))
		return dict
	}
}

// parseNumber returns an int64, or a float64 if the text has a fraction or an exponent. With the
// error that it overflows, it is the nearest number.
func parseNumber(s string) (number any, err error) {
	if strings.ContainsAny(s, ".eE") {
		number, err = strconv.ParseFloat(s, 64)
	} else {
		number, err = strconv.ParseInt(s, 10, 64)
	}
	if err != nil {
		err = fmt.Errorf("the number %s overflows 64 bits", s)
	}
	return number, err
}
