package jinja

import (
	"math"
	"slices"
	"strings"
)

func (c *constant) eval(*machine, *scope) any { return c.value }

func (v *variable) eval(m *machine, s *scope) any {
	m.step(v.line)
	value := settled(s.get(v.name))
	if _, missing := value.(*undefined); missing && slices.Contains(implicit, v.name) {
		fail(v.line, "%s, which Jinja gives to macros, is not supported", v.name)
	}
	return value
}

// implicit are names that have a meaning within macros without being among their parameters.
var implicit = []string{"varargs", "kwargs", "caller"}

func (l *listOf) eval(m *machine, s *scope) any {
	m.make(l.line, 16*len(l.items))
	list := make(List, len(l.items))
	for i, item := range l.items {
		list[i] = item.eval(m, s)
	}
	return list
}

func (d *dictOf) eval(m *machine, s *scope) any {
	m.make(d.line, 64*len(d.keys))
	dict := &Dict{}
	for i, key := range d.keys {
		name, ok := key.eval(m, s).(string)
		if !ok {
			fail(d.line, "a key of a mapping must be a string")
		}
		dict.Set(name, d.values[i].eval(m, s))
	}
	return dict
}

func (c *choice) eval(m *machine, s *scope) any {
	m.step(c.line)
	switch {
	case truth(c.condition.eval(m, s)):
		return c.then.eval(m, s)
	case c.otherwise != nil:
		return c.otherwise.eval(m, s)
	}
	return &undefined{"a choice without else"}
}

func (n *not) eval(m *machine, s *scope) any { return !truth(n.of.eval(m, s)) }

func (l *logical) eval(m *machine, s *scope) any {
	left := l.left.eval(m, s)
	if truth(left) == l.or {
		return left
	}
	return l.right.eval(m, s)
}

func (n *negative) eval(m *machine, s *scope) any {
	m.step(n.line)
	value := n.of.eval(m, s)
	switch i, x, kind := asNumber(value); {
	case kind == 'f':
		return -x
	case kind == 'i' && i != math.MinInt64:
		return -i
	}
	fail(n.line, "%s cannot be negated", typeName(value))
	return nil
}

func (c *comparison) eval(m *machine, s *scope) any {
	left := c.first.eval(m, s)
	for i, op := range c.operators {
		m.step(c.line)
		right := c.others[i].eval(m, s)
		if !m.holds(c.line, op, left, right) {
			return false
		}
		left = right
	}
	return true
}

func (m *machine) holds(line int, op string, a, b any) bool {
	switch op {
	case "==":
		return m.equal(line, a, b, 0)
	case "!=":
		return !m.equal(line, a, b, 0)
	case "<":
		return less(line, a, b)
	case ">":
		return less(line, b, a)
	case "<=":
		return less(line, a, b) || m.equal(line, a, b, 0)
	case ">=":
		return less(line, b, a) || m.equal(line, a, b, 0)
	case "in":
		return m.contains(line, b, a)
	}
	return !m.contains(line, b, a)
}

func (b *binary) eval(m *machine, s *scope) any {
	m.step(b.line)
	left, right := b.left.eval(m, s), b.right.eval(m, s)
	if b.operator == "~" {
		return m.join(b.line, m.str(b.line, left), m.str(b.line, right))
	}
	i, x, kind := asNumber(left)
	j, y, other := asNumber(right)
	switch {
	case kind == 'i' && other == 'i' && b.operator != "/":
		return integers(b.line, b.operator, i, j)
	case kind != 0 && other != 0:
		return reals(b.line, b.operator, x, y)
	}
	switch b.operator {
	case "+":
		return m.add(b.line, left, right)
	case "*":
		if other == 'i' {
			return m.repeat(b.line, left, j)
		}
		if kind == 'i' {
			return m.repeat(b.line, right, i)
		}
	}
	fail(b.line, "%s %s %s: the operator does not take these", typeName(left), b.operator, typeName(right))
	return nil
}

func (m *machine) join(line int, a, b string) string {
	m.make(line, len(a)+len(b))
	return a + b
}

// add joins two strings or two lists.
func (m *machine) add(line int, left, right any) any {
	switch a := left.(type) {
	case string:
		if b, ok := right.(string); ok {
			return m.join(line, a, b)
		}
	case List:
		if b, ok := right.(List); ok {
			m.make(line, 16*(len(a)+len(b)))
			return append(append(make(List, 0, len(a)+len(b)), a...), b...)
		}
	}
	fail(line, "%s + %s: only two numbers, two strings or two lists can be added", typeName(left), typeName(right))
	return nil
}

// repeat is a string or a list, n times.
func (m *machine) repeat(line int, what any, n int64) any {
	n = max(n, 0)
	if n > math.MaxInt32 {
		fail(line, "the template was stopped: it makes too much text")
	}
	switch v := what.(type) {
	case string:
		m.make(line, len(v)*int(n))
		return strings.Repeat(v, int(n))
	case List:
		m.make(line, 16*len(v)*int(n))
		list := make(List, 0, len(v)*int(n))
		for range n {
			list = append(list, v...)
		}
		return list
	}
	fail(line, "%s cannot be repeated", typeName(what))
	return nil
}

// integers computes with integers as Python does: // and % round towards minus infinity.
func integers(line int, op string, a, b int64) any {
	var result int64
	fits := true
	switch op {
	case "+":
		result = a + b
		fits = (result > a) == (b > 0)
	case "-":
		result = a - b
		fits = (result < a) == (b > 0)
	case "*":
		result = a * b
		fits = a == 0 || result/a == b && !(a == -1 && b == math.MinInt64)
	default:
		if b == 0 {
			fail(line, "division by zero")
		}
		fits = !(a == math.MinInt64 && b == -1)
		quotient, rest := a/b, a%b
		if rest != 0 && (rest < 0) != (b < 0) {
			quotient, rest = quotient-1, rest+b
		}
		if result = quotient; op == "%" {
			result = rest
		}
	}
	if !fits {
		fail(line, "the result of %d %s %d does not fit into 64 bits", a, op, b)
	}
	return result
}

// reals does the same with numbers of which one is not an integer.
func reals(line int, op string, a, b float64) any {
	switch op {
	case "+":
		return a + b
	case "-":
		return a - b
	case "*":
		return a * b
	}
	if b == 0 {
		fail(line, "division by zero")
	}
	switch op {
	case "/":
		return a / b
	case "//":
		return math.Floor(a / b)
	}
	rest := math.Mod(a, b)
	if rest != 0 && (rest < 0) != (b < 0) {
		rest += b
	}
	return rest
}

func (c *call) eval(m *machine, s *scope) any {
	m.step(c.line)
	value := c.function.eval(m, s)
	f, ok := value.(*function)
	if !ok {
		fail(c.line, "%s cannot be called", typeName(value))
	}
	return f.run(newCalling(m, s, c.line, f.name, c.args))
}

func (f *filter) eval(m *machine, s *scope) any { return f.apply(m, s, f.input.eval(m, s)) }

// apply runs the filter, after those before it, on the text of a block or on a value.
func (f *filter) apply(m *machine, s *scope, value any) any {
	m.step(f.line)
	if before, ok := f.input.(*filter); ok && f.ofBlock() {
		value = before.apply(m, s, value)
	}
	c := newCalling(m, s, f.line, f.name, f.args)
	return c.filter(f.name)(c, value)
}

// ofBlock tells whether the chain of filters begins with the text of a block.
func (f *filter) ofBlock() bool {
	before, ok := f.input.(*filter)
	return f.input == nil || ok && before.ofBlock()
}

func (t *test) eval(m *machine, s *scope) any {
	m.step(t.line)
	if t.name == "defined" && m.isOpen(t.input, s) {
		return true
	}
	c := newCalling(m, s, t.line, t.name, t.args)
	return c.test(t.name)(c, t.input.eval(m, s))
}
