package plaintoml

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/BurntSushi/toml"

	"github.com/cage-qat/cage/internal/lists"
	"github.com/cage-qat/cage/internal/schema"
)

// Set sets a key of the document to a value.
func (d *Document) Set(s Setting) *Error {
	path, problem := parseKey(s.Key)
	if problem == nil {
		problem = d.put(path, clone(s.Value), position{s.Line, s.File})
	}
	if problem != nil {
		problem.File, problem.Line, problem.Key = s.File, s.Line, oneLine(s.Key)
	}
	return problem
}

// Override applies a command-line setting KEY=VALUE, as given to --set. KEY is a full dotted key.
// VALUE is TOML, with strings in quotes. A table in an array of tables has an index, as in
// "quantizer.overrides[0].bits=3"; the first unused index appends a table.
func (d *Document) Override(text string) *Error {
	name := "--set " + oneLine(text)
	key, value, found := strings.Cut(text, "=")
	key, value = strings.TrimSpace(key), strings.TrimSpace(value)
	fail := func(problem *Error) *Error {
		problem.File, problem.Line, problem.Key = name, 0, oneLine(key)
		return problem
	}
	if !found || key == "" || value == "" || strings.ContainsAny(text, "\r\n") {
		return fail(&Error{Msg: "not a setting",
			Hint: "want KEY=VALUE on one line, such as --set train.steps=100"})
	}
	plain, indexes, problem := cutIndexes(text)
	if problem != nil {
		return fail(problem)
	}
	doc, problem := parse(name, []byte(plain))
	if problem != nil {
		if strings.Contains(problem.Hint, "quotes") {
			problem.Hint = "want a TOML value"
			if !strings.ContainsAny(value, "\"'[]{}\n") {
				problem.Hint += fmt.Sprintf(`; a string needs quotes: --set '%s="%s"'`,
					oneLine(key), oneLine(value))
			}
		}
		return fail(problem)
	}
	if len(doc.leaves) == 0 {
		return fail(&Error{Msg: "not a setting", Hint: "want KEY=VALUE, such as --set train.steps=100"})
	}
	// The text is one expression, so any further leaves belong to an inline table.
	parts := doc.leaves[0].key
	problem = d.put(pathOf(parts, indexes), lookup(doc.values, parts), position{file: name})
	if problem != nil {
		return fail(problem)
	}
	return nil
}

// put sets a value in the tree, and creates the enclosing tables. It replaces a value that is in
// the place of a table; the result is validated later. It is an error if an index is missing or too
// large.
func (d *Document) put(path []step, value any, from position) *Error {
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
				table, ok := value.(map[string]any)
				if !ok {
					return &Error{Msg: "found " + schema.Describe(value),
						Hint: "want a table in braces, or " + name + ".KEY=VALUE"}
				}
				clear(next)
				maps.Copy(next, table)
				break
			}
			tree = next
			continue
		}
		if last {
			tree[s.key] = value
			break
		}
		if schema.IsTables(tree[s.key]) {
			return &Error{Msg: name + " is an array of tables",
				Hint: "want an index, such as " + Indexed(name, 0)}
		}
		next, ok := tree[s.key].(map[string]any)
		if !ok {
			if _, inTheWay := tree[s.key]; inTheWay {
				d.setPosition(name, from)
			}
			next = map[string]any{}
			tree[s.key] = next
		}
		tree = next
	}
	d.setPosition(name, from)
	d.setBelow(name, value, from)
	return nil
}

// element returns the table at an index of the named array of tables. It appends a table if the
// index equals the array's length.
func (d *Document) element(tree map[string]any, s step, name string,
	from position) (map[string]any, *Error) {
	list, ok := schema.TablesOf(tree[s.key])
	if raw, present := tree[s.key]; present && !ok {
		return nil, &Error{Msg: name + " is " + schema.Describe(raw) + ", not an array of tables",
			Hint: "want the key without an index"}
	}
	if s.index > len(list) {
		return nil, &Error{Msg: fmt.Sprintf("%s is an array of length %d", name, len(list)),
			Hint: fmt.Sprintf("want an index of at most %d (index %[1]d appends a table)", len(list))}
	}
	if len(list) == 0 {
		d.keys[name] = from
	}
	if s.index == len(list) {
		list = append(list, map[string]any{})
		d.keys[Indexed(name, s.index)] = from
	}
	tree[s.key] = list
	return list[s.index], nil
}

// step is one part of an override's key.
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

// cutIndexes removes the indexes, which are not TOML, from a key such as
// "quantizer.overrides[0].bits=3". It returns each index under the number of the part that it
// follows.
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
			ends := after == "" || strings.ContainsRune(".=[", rune(after[0]))
			if twice || !closed || err != nil || !ends {
				return "", nil, &Error{Msg: "not an index",
					Hint: "want the index of a table in an array, such as quantizer.overrides[0]"}
			}
			indexes[part] = int(index)
			i += len(inside) + 1
			continue
		}
		b.WriteByte(text[i])
	}
	return b.String(), indexes, nil
}

// ParentKey removes the last part of a dotted key, or its last index in an array of tables. It may
// cut a quoted part at a dot inside it. No key has the resulting name, so a search from key to
// parent key is still correct.
func ParentKey(key string) string {
	if i := strings.LastIndexByte(key, '['); i > 0 && strings.HasSuffix(key, "]") {
		return key[:i]
	}
	if i := strings.LastIndexByte(key, '.'); i >= 0 {
		return key[:i]
	}
	return ""
}

// Indexed returns the name of an element of an array of tables.
func Indexed(name string, i int) string { return fmt.Sprintf("%s[%d]", name, i) }

// JoinKey appends a part to a dotted key. It quotes the part if TOML requires that.
func JoinKey(table, key string) string {
	quoted := toml.Key{key}.String()
	if table == "" {
		return quoted
	}
	return table + "." + quoted
}

// parseKey parses a dotted key with indexes. The error has no file or line.
func parseKey(key string) ([]step, *Error) {
	plain, indexes, problem := cutIndexes(key + "=0")
	if problem != nil {
		return nil, problem
	}
	doc, err := parse("", []byte(plain))
	if err != nil || len(doc.leaves) != 1 || strings.ContainsAny(key, "\r\n=#") {
		return nil, &Error{Msg: "not a key",
			Hint: `want a dotted key of the configuration, such as "train.steps"`}
	}
	return pathOf(doc.leaves[0].key, indexes), nil
}

func lookup(values map[string]any, key toml.Key) any {
	var v any = values
	for _, part := range key {
		m, ok := v.(map[string]any)
		if !ok {
			return nil
		}
		v = m[part]
	}
	return v
}

// valueAt returns the value at a dotted key with indexes, or nil if there is none.
func valueAt(v any, key string) any {
	path, err := parseKey(key)
	if err != nil {
		return nil
	}
	for _, s := range path {
		table, _ := v.(map[string]any)
		v = table[s.key]
		if s.index < 0 {
			continue
		}
		list := reflect.ValueOf(v)
		if list.Kind() != reflect.Slice || s.index >= list.Len() {
			return nil
		}
		v = list.Index(s.index).Interface()
	}
	return v
}

func clone(v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := make(map[string]any, len(v))
		for key, e := range v {
			out[key] = clone(e)
		}
		return out
	case []map[string]any:
		return lists.Map(v, func(e map[string]any) map[string]any { return clone(e).(map[string]any) })
	case []any:
		return lists.Map(v, clone)
	}
	return v
}

// inline formats a TOML value on one line. Tables are in braces, with their keys in order.
func inline(v any) string {
	var parts []string
	switch v := v.(type) {
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(v)) {
			parts = append(parts, toml.Key{key}.String()+" = "+inline(v[key]))
		}
		return "{" + strings.Join(parts, ", ") + "}"
	case []map[string]any, []any:
		for _, e := range reflect.ValueOf(v).Seq2() {
			parts = append(parts, inline(e.Interface()))
		}
		return "[" + strings.Join(parts, ", ") + "]"
	}
	line, err := toml.Marshal(map[string]any{"v": v})
	if err != nil { // not a TOML value
		return fmt.Sprint(v)
	}
	return strings.TrimPrefix(strings.TrimSpace(string(line)), "v = ")
}
