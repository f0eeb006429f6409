package jinja

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"unicode/utf8"
)

func (c *constant) eval(*machine, *scope) any { return c.value }

func (v *variable) eval(m *machine, s *scope) any {
	m.step(v.line)
	value := s.get(v.name)
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

// ofBlock reports whether the chain of filters begins with the text of a block.
func (f *filter) ofBlock() bool {
	before, ok := f.input.(*filter)
	return f.input == nil || ok && before.ofBlock()
}

func (t *test) eval(m *machine, s *scope) any {
	m.step(t.line)
	c := newCalling(m, s, t.line, t.name, t.args)
	return c.test(t.name)(c, t.input.eval(m, s))
}

// eval of an attribute: the methods of a value come before the keys of a mapping, as in
// Python.
func (a *attribute) eval(m *machine, s *scope) any {
	m.step(a.line)
	of := a.of.eval(m, s)
	if f := method(of, a.name); f != nil {
		return f
	}
	return attributeValue(a.line, of, a.name)
}

func attributeValue(line int, of any, name string) any {
	var value any
	var ok bool
	switch v := of.(type) {
	case *Dict:
		value, ok = v.Get(name)
	case *namespace:
		value, ok = v.Get(name)
	case *position:
		value, ok = v.get(name)
	case *undefined:
		fail(line, "%q is asked of %s", name, typeName(v))
	}
	if !ok {
		return &undefined{fmt.Sprintf("%q of %s", name, typeName(of))}
	}
	return value
}

// eval of a subscript: the keys of a mapping come before its methods.
func (x *subscript) eval(m *machine, s *scope) any {
	m.step(x.line)
	return m.element(x.line, x.of.eval(m, s), x.key.eval(m, s))
}

func (m *machine) element(line int, of, key any) any {
	if name, ok := key.(string); ok {
		return elementOrMethod(line, of, name)
	}
	i, _, kind := asNumber(key)
	if kind != 'i' {
		fail(line, "%s is no place in %s", typeName(key), typeName(of))
	}
	n := length(of)
	switch v := of.(type) {
	case List:
		if at, ok := place(i, n); ok {
			return v[at]
		}
	case string:
		m.make(line, len(v)/16)
		if at, ok := place(i, n); ok {
			for begin := range v {
				if at == 0 {
					_, size := utf8.DecodeRuneInString(v[begin:])
					return v[begin : begin+size]
				}
				at--
			}
		}
	case *undefined:
		fail(line, "an element is asked of %s", typeName(v))
	}
	if n < 0 {
		return &undefined{"an element of " + typeName(of)}
	}
	return &undefined{fmt.Sprintf("element [%d] of %s of length %d (counted from 0)", i, typeName(of), n)}
}

func elementOrMethod(line int, of any, name string) any {
	value := attributeValue(line, of, name)
	if _, missing := value.(*undefined); missing {
		if f := method(of, name); f != nil {
			return f
		}
	}
	return value
}

// place counts from the end where i is negative.
func place(i int64, n int) (int, bool) {
	if i < 0 {
		i += int64(n)
	}
	return int(i), i >= 0 && i < int64(n)
}

func (x *slice) eval(m *machine, s *scope) any {
	m.step(x.line)
	of := x.of.eval(m, s)
	n := length(of)
	part := func(e expression, otherwise int64) int64 {
		if e == nil {
			return otherwise
		}
		value := e.eval(m, s)
		i, _, kind := asNumber(value)
		if kind != 'i' && value != nil {
			fail(x.line, "a slice from or to %s, want an integer", typeName(value))
		}
		if value == nil {
			return otherwise
		}
		return i
	}
	step := part(x.step, 1)
	if step == 0 {
		fail(x.line, "a slice with step 0")
	}
	first, last := int64(0), int64(n)
	if step < 0 {
		first, last = int64(n)-1, -1-int64(n)
	}
	from, to := bound(part(x.start, first), n, step), bound(part(x.stop, last), n, step)
	switch v := of.(type) {
	case List:
		m.make(x.line, 16*n)
		var list List
		walk(from, to, step, func(i int64) { list = append(list, v[i]) })
		return list
	case string:
		m.make(x.line, 5*len(v))
		runes := []rune(v)
		var picked []rune
		walk(from, to, step, func(i int64) { picked = append(picked, runes[i]) })
		return string(picked)
	}
	fail(x.line, "%s has no slices", typeName(of))
	return nil
}

// bound puts an end of a slice into the range of a sequence, as Python does.
func bound(i int64, n int, step int64) int64 {
	lowest, highest := int64(0), int64(n)
	if step < 0 {
		lowest, highest = -1, int64(n)-1
	}
	if i < 0 {
		i += int64(n)
	}
	return min(max(i, lowest), highest)
}

func walk(from, to, step int64, visit func(int64)) {
	if step > 0 {
		for i := from; i < to; {
			visit(i)
			if step > to-i {
				return
			}
			i += step
		}
		return
	}
	for i := from; i > to; {
		visit(i)
		if step < to-i {
			return
		}
		i += step
	}
}
