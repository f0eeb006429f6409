package plaintoml

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/BurntSushi/toml"
)

func dig(values map[string]any, key toml.Key) any {
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

// valueAt returns the value at a dotted key with indexes, nil for none.
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
		switch list := v.(type) {
		case []any:
			v = elementOf(list, s.index)
		case []map[string]any:
			v = elementOf(list, s.index)
		default:
			return nil
		}
	}
	return v
}

func elementOf[T any](list []T, i int) any {
	if i >= len(list) {
		return nil
	}
	return list[i]
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
		out := make([]map[string]any, len(v))
		for i, e := range v {
			out[i] = clone(e).(map[string]any)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, e := range v {
			out[i] = clone(e)
		}
		return out
	}
	return v
}

// inline writes a TOML value on one line, tables in braces with their keys in order.
func inline(v any) string {
	switch v := v.(type) {
	case map[string]any:
		var parts []string
		for _, key := range slices.Sorted(maps.Keys(v)) {
			parts = append(parts, toml.Key{key}.String()+" = "+inline(v[key]))
		}
		return "{" + strings.Join(parts, ", ") + "}"
	case []map[string]any:
		return inlineList(v)
	case []any:
		return inlineList(v)
	case string:
		if !strings.ContainsFunc(v, func(r rune) bool { return r < ' ' || r > '~' || r == '"' || r == '\\' }) {
			return `"` + v + `"`
		}
	case bool:
		return strconv.FormatBool(v)
	case int64:
		return strconv.FormatInt(v, 10)
	}
	line, err := toml.Marshal(map[string]any{"v": v})
	if err != nil { // no value that TOML has
		return fmt.Sprint(v)
	}
	return strings.TrimPrefix(strings.TrimSpace(string(line)), "v = ")
}

func inlineList[T any](list []T) string {
	parts := make([]string, len(list))
	for i, e := range list {
		parts[i] = inline(e)
	}
	return "[" + strings.Join(parts, ", ") + "]"
}
