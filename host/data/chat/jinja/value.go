package jinja

import (
	"maps"
	"slices"
	"strings"
	"unicode/utf8"
)

// The values of a template are nil (none), bool, int64, float64, string, List, *Dict and
// the types of this file that are not exported.

// List is a list or a tuple. Neither can be changed, so they are the same here.
type List []any

// Dict is a mapping from strings that keeps the order in which its keys were added. The
// zero value is empty.
type Dict struct {
	keys   []string
	values map[string]any
}

// Set stores a value; an existing key keeps its place.
func (d *Dict) Set(key string, value any) {
	if d.values == nil {
		d.values = map[string]any{}
	}
	if _, ok := d.values[key]; !ok {
		d.keys = append(d.keys, key)
	}
	d.values[key] = value
}

// Get returns the value of a key, and whether there is one.
func (d *Dict) Get(key string) (any, bool) {
	value, ok := d.values[key]
	return value, ok
}

// Keys returns the keys in order. They must not be changed.
func (d *Dict) Keys() []string { return d.keys }

func (d *Dict) items() List {
	list := make(List, len(d.keys))
	for i, key := range d.keys {
		list[i] = List{key, d.values[key]}
	}
	return list
}

type (
	// undefined is what a missing variable, attribute or element is. It prints nothing,
	// counts as false, and most other uses of it are errors.
	undefined struct{ what string }
	// namespace is the one kind of object whose attributes a template can set.
	namespace struct{ Dict }
	// position is "loop" in the body of a loop.
	position struct {
		list List
		at   int
	}
	// function is what can be called: a global, a macro, a method of a value.
	function struct {
		name string
		run  func(c *calling) any
	}
)

func (p *position) get(name string) (any, bool) {
	n := len(p.list)
	switch name {
	case "index":
		return int64(p.at + 1), true
	case "index0":
		return int64(p.at), true
	case "revindex":
		return int64(n - p.at), true
	case "revindex0":
		return int64(n - p.at - 1), true
	case "first":
		return p.at == 0, true
	case "last":
		return p.at == n-1, true
	case "length":
		return int64(n), true
	case "previtem":
		if p.at > 0 {
			return p.list[p.at-1], true
		}
	case "nextitem":
		if p.at < n-1 {
			return p.list[p.at+1], true
		}
	}
	return nil, false
}

// isSpace tells what Python counts as white space.
func isSpace(r rune) bool {
	switch {
	case r >= '\t' && r <= '\r', r >= 0x1c && r <= ' ', r == 0x85, r == 0xa0, r == 0x1680,
		r >= 0x2000 && r <= 0x200a, r == 0x2028, r == 0x2029, r == 0x202f, r == 0x205f, r == 0x3000:
		return true
	}
	return false
}

func truth(value any) bool {
	switch v := value.(type) {
	case nil:
		return false
	case bool:
		return v
	case int64:
		return v != 0
	case float64:
		return v != 0
	case string:
		return v != ""
	case List:
		return len(v) > 0
	case *Dict:
		return len(v.keys) > 0
	case *undefined:
		return false
	}
	return true
}

func typeName(value any) string {
	switch v := value.(type) {
	case nil:
		return "none"
	case bool:
		return "a truth value"
	case int64:
		return "an integer"
	case float64:
		return "a number"
	case string:
		return "a string"
	case List:
		return "a list"
	case *Dict:
		return "a mapping"
	case *undefined:
		return v.what + ", which is undefined"
	case *namespace:
		return "a namespace"
	case *position:
		return "loop"
	}
	return "a function"
}

// length counts characters, elements or keys; -1: the value has no length.
func length(value any) int {
	switch v := value.(type) {
	case string:
		return utf8.RuneCountInString(v)
	case List:
		return len(v)
	case *Dict:
		return len(v.keys)
	case *undefined:
		return 0
	}
	return -1
}

func (m *machine) elements(line int, value any) List {
	switch v := value.(type) {
	case List:
		return v
	case *undefined:
		return nil
	case *Dict:
		m.make(line, 16*len(v.keys))
		list := make(List, len(v.keys))
		for i, key := range v.keys {
			list[i] = key
		}
		return list
	case string:
		m.make(line, 16*len(v))
		list := make(List, 0, len(v))
		for _, r := range v {
			list = append(list, string(r))
		}
		return list
	}
	fail(line, "%s has no elements to go through", typeName(value))
	return nil
}

func known[T any](table map[string]T) string {
	return strings.Join(slices.Sorted(maps.Keys(table)), ", ")
}

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
		b, ok := b.(*Dict)
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
	case *namespace:
		return a == b
	}
	return false
}

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

var tests = map[string]func(c *calling, value any) any{
	"defined":   func(_ *calling, v any) any { return !is[*undefined](v) },
	"undefined": func(_ *calling, v any) any { return is[*undefined](v) },
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
