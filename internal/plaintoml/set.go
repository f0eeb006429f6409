package plaintoml

import (
	"fmt"
	"strings"

	"github.com/cage-qat/cage/internal/schema"
)

// Set puts a setting in the place of what the document says.
func (d *Document) Set(s Setting) *Error {
	path, problem := parseKey(s.Key)
	if problem == nil {
		problem = d.put(path, clone(s.Value), place{s.Line, s.File})
	}
	if problem != nil {
		problem.File, problem.Line, problem.Key = s.File, s.Line, oneLine(s.Key)
	}
	return problem
}

// Override puts a setting of the command line in the place of what the document says. It is KEY=VALUE as given to --set:
// KEY is a full dotted key; VALUE is written as in TOML, strings in quotes. A table in an array of tables is named by its
// index, as in "quantizer.overrides[0].bits=3"; the first free index adds one.
func (d *Document) Override(text string) *Error {
	name := "--set " + oneLine(text)
	key, value, found := strings.Cut(text, "=")
	key, value = strings.TrimSpace(key), strings.TrimSpace(value)
	fail := func(problem *Error) *Error {
		problem.File, problem.Line, problem.Key = name, 0, oneLine(key)
		return problem
	}
	if !found || key == "" || value == "" || strings.ContainsAny(text, "\r\n") {
		return fail(&Error{Msg: "not a setting", Hint: "want KEY=VALUE on one line, such as --set train.steps=100"})
	}
	plain, indexes, problem := cutIndexes(text)
	if problem != nil {
		return fail(problem)
	}
	doc, problem := parse(name, []byte(plain))
	if problem != nil {
		if problem.Hint == "" || strings.Contains(problem.Hint, "quotes") {
			problem.Hint = overrideHint(key, value)
		}
		return fail(problem)
	}
	if len(doc.leaves) == 0 {
		return fail(&Error{Msg: "not a setting", Hint: "want KEY=VALUE, such as --set train.steps=100"})
	}
	// One line is one expression; further leaves are those of an inline table.
	parts := doc.leaves[0].key
	if problem := d.put(pathOf(parts, indexes), dig(doc.values, parts), place{file: name}); problem != nil {
		return fail(problem)
	}
	return nil
}

func overrideHint(key, value string) string {
	if strings.ContainsAny(value, "\"'[]{}\n") {
		return "want a TOML value"
	}
	return fmt.Sprintf(`want a TOML value; a string needs quotes: --set '%s="%s"'`, oneLine(key), oneLine(value))
}

// put sets a value in the tree and makes the tables on the way. A value that stands where
// a table is needed is replaced by one; the result is validated later. It fails when an
// index is missing or too large.
func (d *Document) put(path []step, value any, from place) *Error {
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
		if schema.IsTables(tree[s.key]) {
			return &Error{Msg: name + " is an array of tables", Hint: "want an index, such as " + Indexed(name, 0)}
		}
		next, ok := tree[s.key].(map[string]any)
		if !ok {
			if _, inTheWay := tree[s.key]; inTheWay {
				d.moved(name, from)
			}
			next = map[string]any{}
			tree[s.key] = next
		}
		tree = next
	}
	d.moved(name, from)
	return nil
}

// element returns the table at an index of the array of tables of that name, a new
// one at the first free index.
func (d *Document) element(tree map[string]any, s step, name string, from place) (map[string]any, *Error) {
	list, ok := schema.TablesOf(tree[s.key])
	if raw, present := tree[s.key]; present && !ok {
		return nil, &Error{Msg: name + " is " + schema.Describe(raw) + ", not an array of tables", Hint: "leave the index out"}
	}
	if s.index > len(list) {
		return nil, &Error{Msg: fmt.Sprintf("%s is an array of length %d", name, len(list)),
			Hint: fmt.Sprintf("want an index of at most %d, which adds a table", len(list))}
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

// replace puts a whole table in the place of an element of an array.
func (d *Document) replace(element map[string]any, value any, name string, from place) *Error {
	table, ok := value.(map[string]any)
	if !ok {
		return &Error{Msg: "found " + schema.Describe(value), Hint: "want a table in braces, or " + name + ".KEY=VALUE"}
	}
	clear(element)
	for key, v := range table {
		element[key] = v
	}
	d.moved(name, from)
	return nil
}
