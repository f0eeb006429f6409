package jinja

import (
	"fmt"
	"math"
	"math/big"
	"slices"
	"strings"
)

var compares = map[string]func(m *machine, a, b any) bool{
	"==":     func(m *machine, a, b any) bool { return m.equal(a, b, 0) },
	"!=":     func(m *machine, a, b any) bool { return !m.equal(a, b, 0) },
	"<":      func(m *machine, a, b any) bool { return m.less(a, b) },
	">":      func(m *machine, a, b any) bool { return m.less(b, a) },
	"<=":     func(m *machine, a, b any) bool { return m.less(a, b) || m.equal(a, b, 0) },
	">=":     func(m *machine, a, b any) bool { return m.less(b, a) || m.equal(a, b, 0) },
	"in":     func(m *machine, a, b any) bool { return m.contains(b, a) },
	"not in": func(m *machine, a, b any) bool { return !m.contains(b, a) },
}

func (m *machine) equal(a, b any, depth int) bool {
	m.step(m.line)
	if is[safe](a) || is[safe](b) {
		m.fail("%s cannot be compared with %s", typeName(a), typeName(b))
	}
	if depth > maxDepth {
		m.fail("values are nested more than %d deep", maxDepth)
	}
	if i, x, kind := asNumber(a); kind != 0 {
		j, y, other := asNumber(b)
		if kind == 'i' && other == 'i' {
			return i == j
		}
		return other != 0 && x == y
	}
	switch a := a.(type) {
	case tuple:
		b, ok := b.(tuple)
		return ok && m.equal([]any(a), []any(b), depth)
	case []any:
		b, ok := b.([]any)
		return ok && len(a) == len(b) && m.common(a, b, depth) == len(a)
	case *Dict:
		b, ok := b.(*Dict)
		if !ok || len(a.keys) != len(b.keys) {
			return false
		}
		for _, key := range a.keys {
			value, ok := b.Get(key)
			if !ok || !m.equal(a.values[key], value, depth+1) {
				return false
			}
		}
		return true
	case *undefined:
		return is[*undefined](b)
	case nil, string, longInteger, *namespace:
		return a == b
	}
	return false
}

// common returns the number of first elements that are equal.
func (m *machine) common(a, b []any, depth int) int {
	for i := range min(len(a), len(b)) {
		if !m.equal(a[i], b[i], depth+1) {
			return i
		}
	}
	return min(len(a), len(b))
}

func (m *machine) less(a, b any) bool {
	if is[tuple](a) && is[tuple](b) || is[[]any](a) && is[[]any](b) { // by the first difference
		list, others := m.elements(a), m.elements(b)
		n := m.common(list, others, 0)
		if n == len(list) || n == len(others) {
			return len(list) < len(others)
		}
		return m.less(list[n], others[n])
	}
	i, x, kind := asNumber(a)
	j, y, other := asNumber(b)
	switch {
	case kind == 'i' && other == 'i':
		return i < j
	case kind != 0 && other != 0:
		return x < y
	case !is[string](a) || !is[string](b):
		m.fail("cannot compare %s with %s", typeName(a), typeName(b))
	}
	return a.(string) < b.(string)
}

func (m *machine) contains(where, what any) bool {
	switch w := where.(type) {
	case string:
		if !is[string](what) {
			m.fail("the left operand of in is %s, want a string", typeName(what))
		}
		m.make(len(w) / 16)
		return strings.Contains(w, what.(string))
	case *Dict:
		key, ok := what.(string)
		_, found := w.values[key]
		return ok && found
	}
	for _, element := range m.elements(where) {
		if m.equal(element, what, 0) {
			return true
		}
	}
	return false
}

func (m *machine) binary(op string, left, right any) any {
	if op == "~" {
		a, b := m.str(left), m.str(right)
		m.make(len(a) + len(b))
		return a + b
	}
	i, x, kind := asNumber(left)
	j, y, other := asNumber(right)
	switch {
	case kind != 0 && other != 0:
		if (op == "/" || op == "//" || op == "%") && y == 0 {
			m.fail("division by zero")
		}
		if op == "**" && (kind != 'i' || other != 'i' || j < 0) {
			m.fail("%v ** %v: only powers of integers are supported, with exponents from 0 on", left, right)
		}
		if kind == 'i' && other == 'i' && op != "/" {
			return m.integers(op, i, j)
		}
		return reals(op, x, y)
	case op == "*" && other == 'i':
		return m.repeat(left, j)
	case op == "*" && kind == 'i':
		return m.repeat(right, i)
	case op == "%" && is[string](left):
		return m.format(left.(string), right)
	case op == "+" && is[string](left) && is[string](right):
		return m.binary("~", left, right)
	case op == "+" && is[tuple](left) && is[tuple](right):
		return tuple(m.binary(op, []any(left.(tuple)), []any(right.(tuple))).([]any))
	case op == "+" && is[[]any](left) && is[[]any](right):
		a, b := left.([]any), right.([]any)
		m.make(16 * (len(a) + len(b)))
		return slices.Concat(a, b)
	case op == "+":
		m.fail("%s + %s: only two numbers, two strings or two lists can be added",
			typeName(left), typeName(right))
	}
	m.fail("the operator %s is not defined for %s and %s", op, typeName(left), typeName(right))
	return nil
}

func (m *machine) repeat(what any, n int64) any {
	if n = max(n, 0); n > math.MaxInt32 {
		m.fail("the template was stopped: its texts and lists are too large")
	}
	switch v := what.(type) {
	case string:
		m.make(len(v) * int(n))
		return strings.Repeat(v, int(n))
	case []any:
		m.make(16 * len(v) * int(n))
		return slices.Repeat(v, int(n))
	case tuple:
		return tuple(m.repeat([]any(v), n).([]any))
	}
	m.fail("%s cannot be repeated", typeName(what))
	return nil
}

// integers computes with integers as Python does: // and % round towards minus infinity.
func (m *machine) integers(op string, a, b int64) int64 {
	x, y := big.NewInt(a), big.NewInt(b)
	switch op {
	case "+":
		x.Add(x, y)
	case "-":
		x.Sub(x, y)
	case "*":
		x.Mul(x, y)
	case "**":
		if b > 64 && x.BitLen() > 1 {
			m.fail("the result of %d ** %d overflows 64 bits", a, b)
		}
		x.Exp(x, y, nil)
	default:
		rest := new(big.Int)
		x.QuoRem(x, y, rest)
		if rest.Sign()*y.Sign() < 0 {
			x.Sub(x, big.NewInt(1))
			rest.Add(rest, y)
		}
		if op == "%" {
			x = rest
		}
	}
	if !x.IsInt64() {
		m.fail("the result of %d %s %d overflows 64 bits", a, op, b)
	}
	return x.Int64()
}

// reals is like integers, for operands of which at least one is not an integer.
func reals(op string, a, b float64) float64 {
	switch op {
	case "+":
		return a + b
	case "-":
		return a - b
	case "*":
		return a * b
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

// element evaluates a subscript. The keys of a mapping take precedence over its methods.
func (m *machine) element(of, key any) any {
	if name, ok := key.(string); ok {
		value := m.attribute(of, name)
		if is[*undefined](value) {
			if f := method(of, name); f != nil {
				return f
			}
		}
		return value
	}
	i, _, kind := asNumber(key)
	if kind != 'i' && !is[*undefined](of) {
		return &undefined{fmt.Sprintf("an element of %s at %s", typeName(of), typeName(key))}
	}
	n := int64(length(of))
	at := i
	if at < 0 {
		at += n // counted from the end
	}
	switch v := of.(type) {
	case []any, tuple:
		if at >= 0 && at < n {
			return m.elements(v)[at]
		}
	case string:
		m.make(len(v) / 16)
		if at >= 0 && at < n {
			return string([]rune(v)[at])
		}
	case *undefined:
		m.fail("cannot read an element of %s", typeName(v))
	default:
		return &undefined{"an element of " + typeName(of)}
	}
	return &undefined{
		fmt.Sprintf("element [%d] of %s of length %d (counted from 0)", i, typeName(of), n),
	}
}

// slice evaluates a slice, start:stop:step. An omitted part is nil.
func (m *machine) slice(of any, parts [3]any) any {
	n := int64(length(of))
	part := func(i int, otherwise int64) int64 {
		if parts[i] == nil {
			return otherwise
		}
		integer, _, kind := asNumber(parts[i])
		if kind != 'i' {
			m.fail("a slice from or to %s, want an integer", typeName(parts[i]))
		}
		return integer
	}
	step := part(2, 1)
	if step == 0 {
		m.fail("a slice with step 0")
	}
	step = min(max(step, -n-1), n+1)
	first, last, lowest, highest := int64(0), n, int64(0), n
	if step < 0 {
		first, last, lowest, highest = n-1, -1-n, -1, n-1
	}
	// bound clamps the start or stop to the sequence, as Python does.
	bound := func(i int64) int64 {
		if i < 0 {
			i += n
		}
		return min(max(i, lowest), highest)
	}
	from, to := bound(part(0, first)), bound(part(1, last))
	switch v := of.(type) {
	case []any:
		m.make(16 * len(v))
		return pick(v, from, to, step)
	case string:
		m.make(5 * len(v))
		return string(pick([]rune(v), from, to, step))
	case tuple:
		return tuple(pick(v, from, to, step))
	}
	m.fail("%s cannot be sliced", typeName(of))
	return nil
}

func pick[T any](list []T, from, to, step int64) []T {
	var picked []T
	for i := from; step > 0 && i < to || step < 0 && i > to; i += step {
		picked = append(picked, list[i])
	}
	return picked
}
