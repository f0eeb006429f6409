package plaintoml

import "github.com/BurntSushi/toml"

// dig returns the value at a key, or nil.
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

// clone copies a tree of TOML values.
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
