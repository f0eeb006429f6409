package jinja

import "strings"

// asNumber is the value of a number; truth values count as 0 and 1.
func asNumber(value any) (integer int64, real float64, kind byte) {
	switch v := value.(type) {
	case bool:
		if v {
			return 1, 1, 'i'
		}
		return 0, 0, 'i'
	case int64:
		return v, float64(v), 'i'
	case float64:
		return 0, v, 'f'
	}
	return 0, 0, 0
}

// equal compares by value, as == does.
func (m *machine) equal(line int, a, b any, depth int) bool {
	m.step(line)
	if depth > maxDepth {
		fail(line, "more than %d levels of values within values", maxDepth)
	}
	if i, x, kind := asNumber(a); kind != 0 {
		j, y, other := asNumber(b)
		return other != 0 && (kind == 'i' && other == 'i' && i == j || (kind == 'f' || other == 'f') && x == y)
	}
	switch a := a.(type) {
	case nil:
		return b == nil
	case string:
		b, ok := b.(string)
		return ok && a == b
	case *undefined:
		_, ok := b.(*undefined)
		return ok
	case List:
		b, ok := b.(List)
		if !ok || len(a) != len(b) {
			return false
		}
		for i := range a {
			if !m.equal(line, a[i], b[i], depth+1) {
				return false
			}
		}
		return true
	case *Dict:
		return m.equalDicts(line, a, b, depth)
	case *namespace:
		return a == b
	}
	return false
}

func (m *machine) equalDicts(line int, a *Dict, other any, depth int) bool {
	b, ok := other.(*Dict)
	if !ok || len(a.keys) != len(b.keys) {
		return false
	}
	for _, key := range a.keys {
		value, ok := b.Get(key)
		if !ok || !m.equal(line, a.values[key], value, depth+1) {
			return false
		}
	}
	return true
}

// less orders numbers and strings.
func less(line int, a, b any) bool {
	i, x, kind := asNumber(a)
	j, y, other := asNumber(b)
	switch {
	case kind == 'i' && other == 'i':
		return i < j
	case kind != 0 && other != 0:
		return x < y
	}
	s, ok := a.(string)
	t, too := b.(string)
	if !ok || !too {
		fail(line, "%s and %s have no order", typeName(a), typeName(b))
	}
	return s < t
}

// contains is the operator "in".
func (m *machine) contains(line int, where, what any) bool {
	switch w := where.(type) {
	case string:
		s, ok := what.(string)
		if !ok {
			fail(line, "only a string can be in a string, not %s", typeName(what))
		}
		m.make(line, len(w)/16)
		return strings.Contains(w, s)
	case *Dict:
		key, ok := what.(string)
		_, found := w.values[key]
		return ok && found
	}
	for _, element := range m.elements(line, where) {
		if m.equal(line, element, what, 0) {
			return true
		}
	}
	return false
}

// tests stand behind "is".
var tests = map[string]func(c *calling, value any) any{
	"defined":   func(_ *calling, v any) any { return !isUndefined(v) },
	"undefined": func(_ *calling, v any) any { return isUndefined(v) },
	"none":      func(_ *calling, v any) any { return v == nil },
	"true":      func(_ *calling, v any) any { return v == true },
	"false":     func(_ *calling, v any) any { return v == false },
	"boolean":   func(_ *calling, v any) any { return is[bool](v) },
	"integer":   func(_ *calling, v any) any { return is[int64](v) },
	"float":     func(_ *calling, v any) any { return is[float64](v) },
	"number":    func(_ *calling, v any) any { return is[bool](v) || is[int64](v) || is[float64](v) },
	"string":    func(_ *calling, v any) any { return is[string](v) },
	"mapping":   func(_ *calling, v any) any { return is[*Dict](v) },
	"sequence":  func(_ *calling, v any) any { return length(v) >= 0 },
	"iterable":  func(_ *calling, v any) any { return length(v) >= 0 },
	"callable":  func(_ *calling, v any) any { return is[*function](v) },
	"odd":       func(c *calling, v any) any { return c.remainder(v, 2) == 1 },
	"even":      func(c *calling, v any) any { return c.remainder(v, 2) == 0 },
	"divisibleby": func(c *calling, v any) any {
		return c.remainder(v, c.integer(c.bind(1, "num")[0], 0)) == 0
	},
	"in":          func(c *calling, v any) any { return c.m.contains(c.line, c.bind(1, "seq")[0], v) },
	"equalto":     compares("=="),
	"eq":          compares("=="),
	"==":          compares("=="),
	"ne":          compares("!="),
	"!=":          compares("!="),
	"lt":          compares("<"),
	"<":           compares("<"),
	"le":          compares("<="),
	"<=":          compares("<="),
	"gt":          compares(">"),
	">":           compares(">"),
	"greaterthan": compares(">"),
	"lessthan":    compares("<"),
	"ge":          compares(">="),
	">=":          compares(">="),
}

// test returns the test of this name. As in Jinja, one that there is not is an error only
// where it is used.
func (c *calling) test(name string) func(c *calling, value any) any {
	passes := tests[name]
	if passes == nil {
		fail(c.line, "the test %q is not supported: there are %s", name, known(tests))
	}
	return passes
}

func isUndefined(value any) bool { return is[*undefined](value) }

func is[T any](value any) bool {
	_, ok := value.(T)
	return ok
}

func compares(op string) func(c *calling, value any) any {
	return func(c *calling, value any) any { return c.m.holds(c.line, op, value, c.bind(1, "other")[0]) }
}

// remainder is that of a division, never negative for a positive divisor.
func (c *calling) remainder(value any, by int64) int64 {
	n, _, kind := asNumber(value)
	if kind != 'i' {
		c.fail("the input is %s, want an integer", typeName(value))
	}
	return integers(c.line, "%", n, by).(int64)
}
