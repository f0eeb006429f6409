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

// items are the pairs of key and value.
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
		open bool // the end of the list is not known
	}
	// function is what can be called: a global, a macro, a method of a value.
	function struct {
		name string
		run  func(c *calling) any
	}
)

// get returns an attribute of "loop".
func (p *position) get(name string) (any, bool) {
	n := len(p.list)
	if p.open && (name == "length" || name == "revindex" || name == "revindex0") {
		panic(errDepends)
	}
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

// truth tells whether a condition with this value holds.
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

// typeName is the kind of a value, for messages.
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

// elements are what a loop runs over: elements, keys, or characters.
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

// known lists the names in a table, for messages.
func known[T any](table map[string]T) string {
	return strings.Join(slices.Sorted(maps.Keys(table)), ", ")
}
