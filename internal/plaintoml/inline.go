package plaintoml

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/BurntSushi/toml"
)

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
