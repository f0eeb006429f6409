package jinja

import (
	"fmt"
	"unicode/utf8"

	"github.com/cage-qat/cage/internal/lists"
)

// The values of a template are nil (none), bool, int64, float64, string, []any (a list), *Dict and
// the unexported types of this file.

// Dict is a mapping from strings that keeps insertion order. The zero value is empty.
type Dict struct {
	keys   []string
	values map[string]any
}

// Set stores a value; an existing key keeps its position.
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

type (
	// undefined is the value of a missing variable, attribute or element. It prints nothing, counts
	// as false, and most other uses of it are errors.
	undefined struct{ what string }
	// tuple is a list that prints with parentheses, and equals no list.
	tuple []any
	// safe is a text that can be printed and filtered. Jinja escapes what is added to it.
	safe string
	// longInteger is an integer beyond int64. It can be printed and compared for equality.
	longInteger string
	// namespace is the only object whose attributes a template can set.
	namespace struct{ Dict }
	// position is the value of the variable "loop" in the body of a loop.
	position struct {
		list []any
		at   int
	}
	// iterator is the result of filters such as selectattr, for which Jinja returns a generator: it
	// counts as true even if it is empty, has no length and no elements at an index, and can be
	// iterated over once.
	iterator struct{ list []any }
	// function is a callable: a global, a macro, a method of a value.
	function struct {
		name string
		run  func(c *call) any
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
	case "depth": // of recursion, which is not supported
		return int64(1), true
	case "depth0":
		return int64(0), true
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

func truth(value any) bool {
	switch v := value.(type) {
	case nil, *undefined:
		return false
	case bool:
		return v
	case int64:
		return v != 0
	case float64:
		return v != 0
	case string, safe, []any, tuple, *Dict:
		return length(v) > 0
	}
	return true
}

func typeName(value any) string {
	switch v := value.(type) {
	case nil:
		return "none"
	case bool:
		return "a boolean"
	case int64:
		return "an integer"
	case longInteger:
		return "an integer beyond 64 bits"
	case float64:
		return "a number"
	case string:
		return "a string"
	case safe:
		return "a safe string"
	case []any:
		return "a list"
	case tuple:
		return "a tuple"
	case *Dict:
		return "a mapping"
	case *undefined:
		return v.what + ", which is undefined"
	case *namespace:
		return "a namespace"
	case *position:
		return "loop"
	case *iterator:
		return "the result of a filter without | list"
	}
	return "a function"
}

// length returns the number of characters, elements or keys, or -1 for a value without a length.
func length(value any) int {
	switch v := value.(type) {
	case string:
		return utf8.RuneCountInString(v)
	case safe:
		return utf8.RuneCountInString(string(v))
	case []any:
		return len(v)
	case tuple:
		return len(v)
	case *Dict:
		return len(v.keys)
	case *undefined:
		return 0
	}
	return -1
}

// elements returns the sequence over which a loop iterates.
func (m *machine) elements(value any) []any {
	switch v := value.(type) {
	case []any:
		return v
	case tuple:
		return v
	case *undefined:
		return nil
	case *iterator:
		list := v.list
		v.list = nil
		return list
	case *Dict:
		m.make(16 * len(v.keys))
		return lists.Map(v.keys, func(key string) any { return key })
	case string:
		m.make(16 * len(v))
		list := make([]any, 0, len(v))
		for _, r := range v {
			list = append(list, string(r))
		}
		return list
	}
	m.fail("%s is not iterable", typeName(value))
	return nil
}

func (m *machine) items(d *Dict) []any {
	m.make(64 * len(d.keys))
	return lists.Map(d.keys, func(key string) any { return tuple{key, d.values[key]} })
}

// asNumber returns a number as an integer of kind 'i' or a float64 of kind 'f'; bools count as 0
// and 1.
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

func (m *machine) attribute(of any, name string) any {
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
		m.fail("cannot read %q of %s", name, typeName(v))
	}
	if !ok {
		return &undefined{fmt.Sprintf("%q of %s", name, typeName(of))}
	}
	return value
}
