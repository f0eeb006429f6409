package config

import (
	"fmt"

	"github.com/cage-qat/cage/internal/schema"
)

// put sets a value in the tree and makes the tables on the way. A value that stands where
// a table is needed is replaced by one; the result is validated later. It fails when an
// index is missing or too large.
func (d *decoder) put(path []step, value any, from place) *Error {
	tree, name := d.values, ""
	for i, s := range path {
		name = JoinKey(name, s.key)
		last := i == len(path)-1
		if s.index >= 0 {
			next, err := d.element(tree, s, name, from)
			if err != nil {
				return err
			}
			name = Indexed(name, s.index)
			if last {
				return d.replace(next, value, name, from)
			}
			tree = next
			continue
		}
		if last {
			tree[s.key] = value
			break
		}
		if isTables(tree[s.key]) {
			return &Error{Msg: name + " is an array of tables", Hint: "want an index, such as " + Indexed(name, 0)}
		}
		next, ok := tree[s.key].(map[string]any)
		if !ok {
			if _, inTheWay := tree[s.key]; inTheWay {
				d.origin.set(name, from)
			}
			next = map[string]any{}
			tree[s.key] = next
		}
		tree = next
	}
	d.origin.set(name, from)
	return nil
}

// element returns the table at an index of the array of tables of that name, a new
// one at the first free index.
func (d *decoder) element(tree map[string]any, s step, name string, from place) (map[string]any, *Error) {
	list, ok := TablesOf(tree[s.key])
	if raw, present := tree[s.key]; present && !ok {
		return nil, &Error{Msg: name + " is " + schema.Describe(raw) + ", not an array of tables", Hint: "leave the index out"}
	}
	if s.index > len(list) {
		return nil, &Error{Msg: fmt.Sprintf("%s is an array of length %d", name, len(list)),
			Hint: fmt.Sprintf("want an index of at most %d, which adds a table", len(list))}
	}
	if len(list) == 0 {
		d.origin.keys[name] = from
	}
	if s.index == len(list) {
		list = append(list, map[string]any{})
		d.origin.keys[Indexed(name, s.index)] = from
	}
	tree[s.key] = list
	return list[s.index], nil
}

// replace puts a whole table in the place of an element of an array.
func (d *decoder) replace(element map[string]any, value any, name string, from place) *Error {
	table, ok := value.(map[string]any)
	if !ok {
		return &Error{Msg: "found " + schema.Describe(value), Hint: "want a table in braces, or " + name + ".KEY=VALUE"}
	}
	clear(element)
	for key, v := range table {
		element[key] = v
	}
	d.origin.set(name, from)
	return nil
}
