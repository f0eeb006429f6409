package jinja

import (
	"fmt"
	"slices"
)

type expression interface {
	eval(m *machine, s *scope) any
}

type statement interface {
	exec(m *machine, s *scope) flow
}

// Expressions. A line is where an error is reported.
type (
	constant struct{ value any }
	variable struct {
		name string
		line int
	}
	listOf struct {
		items []expression
		line  int
	}
	dictOf struct {
		keys, values []expression
		line         int
	}
	attribute struct {
		of   expression
		name string
		line int
	}
	subscript struct {
		of, key expression
		line    int
	}
	slice struct {
		of                expression
		start, stop, step expression // nil where left out
		line              int
	}
	call struct {
		function expression
		args     arguments
		line     int
	}
	filter struct {
		input expression // nil: the text of a block
		name  string
		args  arguments
		line  int
	}
	test struct {
		input expression
		name  string
		args  arguments
		line  int
	}
	// choice is "then if condition else otherwise"; without else it may be undefined.
	choice struct {
		then, condition, otherwise expression
		line                       int
	}
	not     struct{ of expression }
	logical struct {
		or          bool
		left, right expression
	}
	negative struct {
		of   expression
		line int
	}
	binary struct {
		operator    string
		left, right expression
		line        int
	}
	// comparison is a chain, as in a < b <= c.
	comparison struct {
		first     expression
		operators []string
		others    []expression
		line      int
	}
)

type arguments struct {
	positional []expression
	names      []string // of the named ones
	named      []expression
}

// Statements.
type (
	text struct {
		text string
		line int
	}
	output struct {
		of   expression
		line int
	}
	loop struct {
		targets         []string
		over, condition expression // condition may be nil
		body, otherwise []statement
		line            int
	}
	conditional struct {
		conditions []expression
		bodies     [][]statement // one more than conditions where there is an else
		line       int
	}
	assignment struct {
		targets []target
		value   expression
		line    int
	}
	// blockAssignment stores what a block prints.
	blockAssignment struct {
		target target
		filter expression // nil: none
		body   []statement
		line   int
	}
	macro struct {
		name     string
		params   []string
		defaults []expression // of the last params
		body     []statement
		line     int
	}
	generation struct {
		body []statement
		line int
	}
	leave struct{ how flow }
)

// target is what a value is assigned to: a name, or an attribute of a namespace.
type target struct{ name, attribute string }

type flow int

const (
	goOn flow = iota
	breakLoop
	continueLoop
)

// parser reads the statements of a template by recursive descent.
type parser struct {
	tokens     []token
	next       int
	depth      int  // of nesting
	loops      int  // around the place that is read
	macros     int  // around it
	generation bool // one was found
}

// maxNesting bounds expressions within expressions and blocks within blocks.
const maxNesting = 200

func (p *parser) at() token { return p.tokens[p.next] }

// take returns the token and goes on to the next; the one at the end stays.
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

func (p *parser) is(kind tokenKind, text string) bool {
	return p.at().kind == kind && p.at().text == text
}

func (p *parser) skip(kind tokenKind, text string) bool {
	found := p.is(kind, text)
	if found {
		p.next++
	}
	return found
}

// want takes the next token, which must be of this kind and, unless text is "", this text.
func (p *parser) want(kind tokenKind, text, what string) token {
	if p.at().kind != kind || text != "" && p.at().text != text {
		p.unexpected(what)
	}
	return p.take()
}

func (p *parser) wantOperator(op string) { p.want(operatorToken, op, fmt.Sprintf("%q", op)) }

// deeper guards against nesting without end; the function it returns ends one level.
func (p *parser) deeper() func() {
	if p.depth++; p.depth > maxNesting {
		fail(p.at().line, "more than %d levels of nesting", maxNesting)
	}
	return func() { p.depth-- }
}

// statements reads up to a block tag that begins with one of the words, or to the end. It
// stops behind the {% of that tag.
func (p *parser) statements(until ...string) []statement {
	defer p.deeper()()
	var list []statement
	for {
		switch t := p.at(); t.kind {
		case textToken:
			p.take()
			list = append(list, &text{t.text, t.line})
		case openPrint:
			p.take()
			value := p.tupleOrExpression()
			p.want(closePrint, "", `"}}"`)
			list = append(list, &output{value, t.line})
		case openBlock:
			p.take()
			if p.at().kind == nameToken && slices.Contains(until, p.at().text) {
				return list
			}
			list = append(list, p.block())
		default:
			if len(until) > 0 {
				p.unexpected(fmt.Sprintf("{%% %s %%}", until[len(until)-1]))
			}
			return list
		}
	}
}

func (p *parser) block() statement {
	word := p.want(nameToken, "", "the name of a block")
	switch word.text {
	case "for":
		return p.forBlock(word.line)
	case "if":
		return p.ifBlock(word.line)
	case "set":
		return p.setBlock(word.line)
	case "macro":
		return p.macroBlock(word.line)
	case "generation":
		return p.generationBlock(word.line)
	case "break", "continue":
		if p.loops == 0 {
			fail(word.line, "%s outside of a loop", word.text)
		}
		p.closeBlock()
		return leave{map[string]flow{"break": breakLoop, "continue": continueLoop}[word.text]}
	}
	fail(word.line, "the block %q is not supported: there are for, if, set, macro, generation, break and continue", word.text)
	return nil
}

func (p *parser) closeBlock() { p.want(closeBlock, "", `"%}"`) }

func (p *parser) end(word string) {
	p.want(nameToken, word, "{% "+word+" %}")
	p.closeBlock()
}

func (p *parser) forBlock(line int) statement {
	f := &loop{line: line, targets: p.names()}
	p.want(nameToken, "in", `"in"`)
	f.over = p.tupleOf(p.or)
	if p.skip(nameToken, "if") {
		f.condition = p.expression()
	}
	if p.is(nameToken, "recursive") {
		p.unexpected(`"%}": recursive loops are not supported`)
	}
	p.closeBlock()
	p.loops++
	f.body = p.statements("else", "endfor")
	p.loops--
	if p.skip(nameToken, "else") {
		p.closeBlock()
		f.otherwise = p.statements("endfor")
	}
	p.end("endfor")
	return f
}

func (p *parser) names() []string {
	parenthesis := p.skip(operatorToken, "(")
	list := []string{p.want(nameToken, "", "a name").text}
	for p.skip(operatorToken, ",") {
		list = append(list, p.want(nameToken, "", "a name").text)
	}
	if parenthesis {
		p.wantOperator(")")
	}
	return list
}

func (p *parser) ifBlock(line int) statement {
	c := &conditional{line: line}
	for {
		c.conditions = append(c.conditions, p.tupleOrExpression())
		p.closeBlock()
		c.bodies = append(c.bodies, p.statements("elif", "else", "endif"))
		if !p.skip(nameToken, "elif") {
			break
		}
	}
	if p.skip(nameToken, "else") {
		p.closeBlock()
		c.bodies = append(c.bodies, p.statements("endif"))
	}
	p.end("endif")
	return c
}

func (p *parser) setBlock(line int) statement {
	targets := []target{p.target()}
	for p.skip(operatorToken, ",") {
		targets = append(targets, p.target())
	}
	if p.skip(operatorToken, "=") {
		value := p.tupleOrExpression()
		p.closeBlock()
		return &assignment{targets, value, line}
	}
	if len(targets) > 1 {
		p.unexpected(`"="`)
	}
	var filters expression
	if p.is(operatorToken, "|") {
		filters = p.filters(nil)
	}
	p.closeBlock()
	body := p.statements("endset")
	p.end("endset")
	return &blockAssignment{targets[0], filters, body, line}
}

func (p *parser) target() target {
	t := target{name: p.want(nameToken, "", "a name").text}
	if p.skip(operatorToken, ".") {
		t.attribute = p.want(nameToken, "", "the name of an attribute").text
	}
	return t
}

func (p *parser) macroBlock(line int) statement {
	d := &macro{name: p.want(nameToken, "", "the name of the macro").text, line: line}
	p.wantOperator("(")
	for !p.is(operatorToken, ")") {
		if len(d.params) > 0 {
			p.wantOperator(",")
		}
		d.params = append(d.params, p.want(nameToken, "", "a parameter").text)
		if p.skip(operatorToken, "=") {
			d.defaults = append(d.defaults, p.expression())
		} else if len(d.defaults) > 0 {
			fail(p.at().line, "parameter %q has no default, the one before it has", d.params[len(d.params)-1])
		}
	}
	p.wantOperator(")")
	p.closeBlock()
	loops := p.loops
	p.loops, p.macros = 0, p.macros+1
	d.body = p.statements("endmacro")
	p.loops, p.macros = loops, p.macros-1
	p.end("endmacro")
	return d
}

func (p *parser) generationBlock(line int) statement {
	if p.macros > 0 {
		fail(line, "a generation block within a macro: where its text stands in the end cannot be told")
	}
	p.generation = true
	p.closeBlock()
	loops := p.loops
	p.loops = 0
	body := p.statements("endgeneration")
	p.loops = loops
	p.end("endgeneration")
	return &generation{body, line}
}
