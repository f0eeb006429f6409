package config

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/BurntSushi/toml"
)

// step is one part of the key of an override.
type step struct {
	key   string
	index int // of the element in an array of tables; -1: none
}

func pathOf(key toml.Key, indexes map[int]int) []step {
	path := make([]step, len(key))
	for i, part := range key {
		path[i] = step{part, -1}
		if index, ok := indexes[i]; ok {
			path[i].index = index
		}
	}
	return path
}

// cutIndexes takes the indexes, which TOML does not have, out of the key of
// "quantizer.overrides[0].bits=3". They come back by the number of the part that
// they follow.
func cutIndexes(text string) (plain string, indexes map[int]int, problem *Error) {
	var b strings.Builder
	indexes = map[int]int{}
	part, quote := 0, byte(0)
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case quote == '"' && c == '\\' && i+1 < len(text):
			b.WriteByte(c)
			i++
		case quote != 0:
			if c == quote {
				quote = 0
			}
		case c == '"' || c == '\'':
			quote = c
		case c == '.':
			part++
		case c == '=' || c == '#' || c == '[' && strings.TrimSpace(text[:i]) == "":
			return b.String() + text[i:], indexes, nil
		case c == '[':
			inside, _, closed := strings.Cut(text[i+1:], "]")
			index, err := strconv.ParseUint(inside, 10, 31)
			_, twice := indexes[part]
			after := strings.TrimSpace(text[min(i+len(inside)+2, len(text)):])
			if twice || !closed || err != nil || after != "" && !strings.ContainsRune(".=[", rune(after[0])) {
				return "", nil, &Error{Msg: "not an index", Hint: "want the number of a table of an array, such as quantizer.overrides[0]"}
			}
			indexes[part] = int(index)
			i += len(inside) + 1
			continue
		}
		b.WriteByte(text[i])
	}
	return b.String(), indexes, nil
}

// put sets a value in the tree, making tables on the way; what stood in the
// way of a table gives way to it, and validation will judge the result. It fails
// when an index is missing or of nothing.
func (d *decoder) put(path []step, value any, from place) *Error {
	tree, name := d.values, ""
	for i, s := range path {
		name = joinKey(name, s.key)
		last := i == len(path)-1
		if s.index >= 0 {
			next, err := d.element(tree, s, name, from)
			if err != nil {
				return err
			}
			name = indexed(name, s.index)
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
			return &Error{Msg: name + " is an array of tables", Hint: "want an index, such as " + indexed(name, 0)}
		}
		next, ok := tree[s.key].(map[string]any)
		if !ok {
			if _, inTheWay := tree[s.key]; inTheWay {
				d.origin.forget(name)
				d.origin.keys[name] = from
			}
			next = map[string]any{}
			tree[s.key] = next
		}
		tree = next
	}
	d.origin.forget(name)
	d.origin.keys[name] = from
	return nil
}

// element returns the table at an index of the array of tables of that name, a new
// one at the first free index.
func (d *decoder) element(tree map[string]any, s step, name string, from place) (map[string]any, *Error) {
	list, ok := tablesOf(tree[s.key])
	if raw, present := tree[s.key]; present && !ok {
		return nil, &Error{Msg: name + " is " + Describe(raw) + ", not an array of tables", Hint: "leave the index out"}
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
		d.origin.keys[indexed(name, s.index)] = from
	}
	tree[s.key] = list
	return list[s.index], nil
}

// replace puts a whole table in the place of an element of an array.
func (d *decoder) replace(element map[string]any, value any, name string, from place) *Error {
	table, ok := value.(map[string]any)
	if !ok {
		return &Error{Msg: "found " + Describe(value), Hint: "want a table in braces, or " + name + ".KEY=VALUE"}
	}
	clear(element)
	for key, v := range table {
		element[key] = v
	}
	d.origin.forget(name)
	d.origin.keys[name] = from
	return nil
}
