package plaintoml

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

// ParentKey cuts the last part off a dotted key, or its index in an array of
// tables. It cuts a quoted part at a dot inside of it; no key is found by such a rest, so
// that those who go up from key to key lose nothing.
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

// JoinKey appends a part to a dotted key, quoted where TOML needs it.
func JoinKey(table, key string) string {
	quoted := toml.Key{key}.String()
	if table == "" {
		return quoted
	}
	return table + "." + quoted
}

// parseKey reads a dotted key with indexes. The error has no place.
func parseKey(key string) ([]step, *Error) {
	plain, indexes, problem := cutIndexes(key + "=0")
	if problem != nil {
		return nil, problem
	}
	doc, err := parse("", []byte(plain))
	if err != nil || len(doc.leaves) != 1 || strings.ContainsAny(key, "\r\n=#") {
		return nil, &Error{Msg: "not a key", Hint: `want a dotted key of the configuration, such as "train.steps"`}
	}
	return pathOf(doc.leaves[0].key, indexes), nil
}
