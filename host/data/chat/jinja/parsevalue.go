package jinja

import "strconv"

var constants = map[string]any{"true": true, "True": true, "false": false, "False": false, "none": nil, "None": nil}

// primary reads a name, a constant, or something in brackets.
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
		return p.list(t.line)
	case p.skip(operatorToken, "{"):
		return p.dict(t.line)
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

func (p *parser) list(line int) expression {
	list := &listOf{line: line}
	for !p.skip(operatorToken, "]") {
		if len(list.items) > 0 {
			p.wantOperator(",")
			if p.skip(operatorToken, "]") {
				break
			}
		}
		list.items = append(list.items, p.expression())
	}
	return list
}

func (p *parser) dict(line int) expression {
	d := &dictOf{line: line}
	for !p.skip(operatorToken, "}") {
		if len(d.keys) > 0 {
			p.wantOperator(",")
			if p.skip(operatorToken, "}") {
				break
			}
		}
		d.keys = append(d.keys, p.expression())
		p.wantOperator(":")
		d.values = append(d.values, p.expression())
	}
	return d
}
