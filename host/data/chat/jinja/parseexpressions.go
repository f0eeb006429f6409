package jinja

import (
	"slices"
	"strconv"
)

// tupleOrExpression reads an expression, or several with commas between them.
func (p *parser) tupleOrExpression() expression { return p.tupleOf(p.expression) }

func (p *parser) tupleOf(element func() expression) expression {
	first := element()
	if !p.is(operatorToken, ",") {
		return first
	}
	list := &listOf{items: []expression{first}, line: p.at().line}
	for p.skip(operatorToken, ",") && !p.endsTuple() {
		list.items = append(list.items, element())
	}
	return list
}

// endsTuple reports whether a comma was the last of a tuple.
func (p *parser) endsTuple() bool {
	return p.at().kind == closePrint || p.at().kind == closeBlock || p.is(operatorToken, ")")
}

// expression reads the loosest form: "a if b else c".
func (p *parser) expression() expression {
	defer p.deeper()()
	value := p.or()
	for p.is(nameToken, "if") {
		c := &choice{then: value, line: p.take().line}
		c.condition = p.or()
		if p.skip(nameToken, "else") {
			c.otherwise = p.expression()
		}
		value = c
	}
	return value
}

func (p *parser) or() expression {
	left := p.and()
	for p.skip(nameToken, "or") {
		left = &logical{true, left, p.and()}
	}
	return left
}

func (p *parser) and() expression {
	left := p.not()
	for p.skip(nameToken, "and") {
		left = &logical{false, left, p.not()}
	}
	return left
}

func (p *parser) not() expression {
	defer p.deeper()()
	if p.skip(nameToken, "not") {
		return &not{p.not()}
	}
	return p.comparison()
}

func (p *parser) comparison() expression {
	c := &comparison{first: p.sum(), line: p.at().line}
	for {
		op := ""
		switch t := p.at(); {
		case t.kind == operatorToken && slices.Contains([]string{"==", "!=", "<", "<=", ">", ">="}, t.text), p.is(nameToken, "in"):
			op = p.take().text
		case p.is(nameToken, "not") && p.tokens[p.next+1].kind == nameToken && p.tokens[p.next+1].text == "in":
			p.next += 2
			op = "not in"
		case len(c.others) == 0:
			return c.first
		default:
			return c
		}
		c.operators, c.others = append(c.operators, op), append(c.others, p.sum())
	}
}

// chain reads operands with operators of one rank between them.
func (p *parser) chain(operand func() expression, operators ...string) expression {
	left := operand()
	for p.at().kind == operatorToken && slices.Contains(operators, p.at().text) {
		op := p.take()
		left = &binary{op.text, left, operand(), op.line}
	}
	return left
}

func (p *parser) sum() expression     { return p.chain(p.concat, "+", "-") }
func (p *parser) concat() expression  { return p.chain(p.product, "~") }
func (p *parser) product() expression { return p.chain(p.filtered, "*", "/", "//", "%") }

// filtered reads a value with its filters and tests.
func (p *parser) filtered() expression {
	value := p.unary()
	for {
		switch {
		case p.is(operatorToken, "|"):
			value = p.filters(value)
		case p.is(nameToken, "is"):
			value = p.test(value)
		case p.is(operatorToken, "("):
			value = p.call(value)
		default:
			return value
		}
	}
}

func (p *parser) unary() expression {
	defer p.deeper()()
	var value expression
	switch line := p.at().line; {
	case p.skip(operatorToken, "-"):
		value = &negative{p.unary(), line}
	case p.skip(operatorToken, "+"):
		value = p.unary()
	default:
		value = p.primary()
	}
	return p.postfix(value)
}

func (p *parser) postfix(value expression) expression {
	for {
		line := p.at().line
		switch {
		case p.skip(operatorToken, "."):
			if p.at().kind == integerToken {
				value = &subscript{value, p.primary(), line}
			} else {
				value = &attribute{value, p.want(nameToken, "", "the name of an attribute").text, line}
			}
		case p.skip(operatorToken, "["):
			value = p.subscript(value, line)
		case p.is(operatorToken, "("):
			value = p.call(value)
		default:
			return value
		}
	}
}

// subscript reads "key]" or "start:stop:step]".
func (p *parser) subscript(of expression, line int) expression {
	var parts [3]expression
	n := 0
	for ; n < 3; n++ {
		if !p.is(operatorToken, ":") && !p.is(operatorToken, "]") {
			parts[n] = p.expression()
		}
		if !p.skip(operatorToken, ":") {
			break
		}
	}
	p.wantOperator("]")
	if n == 0 {
		if parts[0] == nil {
			fail(line, "nothing stands between [ and ]")
		}
		return &subscript{of, parts[0], line}
	}
	return &slice{of, parts[0], parts[1], parts[2], line}
}

func (p *parser) call(function expression) expression {
	return &call{function, p.arguments(), p.at().line}
}

// arguments reads those of a call, from its parenthesis on.
func (p *parser) arguments() arguments {
	var a arguments
	p.wantOperator("(")
	p.commaSeparated(")", func() {
		if p.at().kind == nameToken && p.tokens[p.next+1].kind == operatorToken && p.tokens[p.next+1].text == "=" {
			a.names = append(a.names, p.take().text)
			p.take()
			a.named = append(a.named, p.expression())
			return
		}
		if len(a.named) > 0 {
			p.unexpected("a named argument, as those before it")
		}
		a.positional = append(a.positional, p.expression())
	})
	return a
}

// commaSeparated reads elements up to a bracket, with commas between them and perhaps behind the
// last.
func (p *parser) commaSeparated(end string, element func()) {
	for first := true; !p.skip(operatorToken, end); first = false {
		if !first {
			p.wantOperator(",")
			if p.skip(operatorToken, end) {
				return
			}
		}
		element()
	}
}

// filters reads one or several "| name(arguments)".
func (p *parser) filters(value expression) expression {
	for p.skip(operatorToken, "|") {
		name := p.want(nameToken, "", "the name of a filter")
		f := &filter{input: value, name: name.text, line: name.line}
		if p.is(operatorToken, "(") {
			f.args = p.arguments()
		}
		value = f
	}
	return value
}

func (p *parser) test(value expression) expression {
	p.take()
	negated := p.skip(nameToken, "not")
	name := p.want(nameToken, "", "the name of a test")
	t := &test{input: value, name: name.text, line: name.line}
	switch {
	case p.is(operatorToken, "("):
		t.args = p.arguments()
	case p.beginsArgument():
		t.args.positional = []expression{p.postfix(p.primary())}
	}
	if negated {
		return &not{t}
	}
	return t
}

// beginsArgument reports whether a test has an argument without parentheses, as "is equalto 3".
func (p *parser) beginsArgument() bool {
	switch t := p.at(); t.kind {
	case nameToken:
		return !slices.Contains([]string{"else", "or", "and", "if", "is", "in", "not"}, t.text)
	case stringToken, integerToken, floatToken:
		return true
	case operatorToken:
		return t.text == "[" || t.text == "{"
	}
	return false
}

var constants = map[string]any{"true": true, "True": true, "false": false, "False": false, "none": nil, "None": nil}

func (p *parser) primary() expression {
	t := p.at()
	switch t.kind {
	case nameToken:
		p.take()
		if value, ok := constants[t.text]; ok {
			return &constant{value}
		}
		return &variable{t.text, t.line}
	case stringToken:
		p.take()
		s := t.text
		for p.at().kind == stringToken {
			s += p.take().text
		}
		return &constant{s}
	case integerToken, floatToken:
		p.take()
		return number(t)
	}
	switch {
	case p.skip(operatorToken, "("):
		if p.skip(operatorToken, ")") {
			return &listOf{line: t.line}
		}
		value := p.tupleOrExpression()
		p.wantOperator(")")
		return value
	case p.skip(operatorToken, "["):
		list := &listOf{line: t.line}
		p.commaSeparated("]", func() { list.items = append(list.items, p.expression()) })
		return list
	case p.skip(operatorToken, "{"):
		d := &dictOf{line: t.line}
		p.commaSeparated("}", func() {
			d.keys = append(d.keys, p.expression())
			p.wantOperator(":")
			d.values = append(d.values, p.expression())
		})
		return d
	}
	p.unexpected("a value")
	return nil
}

func number(t token) expression {
	if t.kind == integerToken {
		n, err := strconv.ParseInt(t.text, 10, 64)
		if err != nil {
			fail(t.line, "the number %s does not fit into 64 bits", t.text)
		}
		return &constant{n}
	}
	x, err := strconv.ParseFloat(t.text, 64)
	if err != nil {
		fail(t.line, "%s is no number of 64 bits", t.text)
	}
	return &constant{x}
}
