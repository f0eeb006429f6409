package jinja

import (
	"fmt"
	"unicode/utf8"
)

// eval of an attribute: the methods of a value come before the keys of a mapping, as in
// Python.
func (a *attribute) eval(m *machine, s *scope) any {
	m.step(a.line)
	of := a.of.eval(m, s)
	if f := method(of, a.name); f != nil {
		return f
	}
	return own(a.line, of, a.name)
}

// own is the element of a mapping, or the attribute of a namespace or of "loop".
func own(line int, of any, name string) any {
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
	if open := m.openList(x.of, s); open != nil {
		return open.element(x.key.eval(m, s))
	}
	return m.element(x.line, x.of.eval(m, s), x.key.eval(m, s))
}

func (m *machine) element(line int, of, key any) any {
	if name, ok := key.(string); ok {
		return named(line, of, name)
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
			begin := offset(v, at)
			_, size := utf8.DecodeRuneInString(v[begin:])
			return v[begin : begin+size]
		}
	case *undefined:
		fail(line, "an element is asked of %s", typeName(v))
	}
	if n < 0 {
		return &undefined{"an element of " + typeName(of)}
	}
	return &undefined{fmt.Sprintf("element [%d] of %s of length %d (counted from 0)", i, typeName(of), n)}
}

// named is the element of a mapping or else a method.
func named(line int, of any, name string) any {
	value := own(line, of, name)
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

// offset is where the character with this number begins.
func offset(s string, n int) int {
	at := 0
	for ; n > 0; n-- {
		_, size := utf8.DecodeRuneInString(s[at:])
		at += size
	}
	return at
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
