package config

import (
	"maps"
	"reflect"

	"github.com/cage-qat/cage/internal/plaintoml"
	"github.com/cage-qat/cage/internal/schema"
)

// Plugin names a plugin and the parameters to give it. The parameters are not
// checked here: only the plugin knows which it takes.
type Plugin struct {
	Table  string // where it was configured, such as "quantizer.weights"
	Name   string // name, or path when it contains a slash
	SHA256 string // expected hash in lower-case hexadecimal; "": any
	// Params holds the parameters. Each is an int64, float64, string or bool, or a slice
	// of one of these; an empty array is a []any of length 0. An integer is not
	// converted, even if the plugin will want a float.
	Params map[string]any
}

// Path returns the full dotted key of a parameter, for [Config.ErrorAt].
func (p *Plugin) Path(key string) string { return plaintoml.JoinKey(p.Table, key) }

// copy is a plugin of its own with what p has; nil when p is.
func (p *Plugin) copy() *Plugin {
	if p == nil {
		return nil
	}
	other := *p
	other.Params = maps.Clone(p.Params)
	return &other
}

// same reports whether two roles have one plugin with one set of parameters.
func (p *Plugin) same(q *Plugin) bool {
	if p == nil || q == nil {
		return p == q
	}
	return p.Name == q.Name && p.SHA256 == q.SHA256 && reflect.DeepEqual(p.Params, q.Params)
}

// paramValue brings an array to the slice type of its elements and refuses
// what a plugin cannot be given. The second result says what was found.
func paramValue(raw any) (any, string) {
	switch v := raw.(type) {
	case []any:
		return paramArray(v)
	case int64, string, bool:
		return v, ""
	case float64:
		if !schema.Finite(v) {
			return nil, schema.Describe(v)
		}
		return v, ""
	default:
		return nil, schema.Describe(raw)
	}
}

func paramArray(elements []any) (any, string) {
	if len(elements) == 0 {
		return []any{}, ""
	}
	for _, e := range elements {
		if _, isArray := e.([]any); isArray {
			return nil, "an array of arrays"
		}
		if _, bad := paramValue(e); bad != "" {
			return nil, "an array with " + bad
		}
	}
	if v, ok := sliceOf[int64](elements); ok {
		return v, ""
	}
	if v, ok := sliceOf[string](elements); ok {
		return v, ""
	}
	if v, ok := sliceOf[bool](elements); ok {
		return v, ""
	}
	widened := make([]any, len(elements))
	for i, e := range elements {
		if n, isInt := e.(int64); isInt {
			e = float64(n)
		}
		widened[i] = e
	}
	if v, ok := sliceOf[float64](widened); ok {
		return v, ""
	}
	return nil, "an array of mixed types"
}

func sliceOf[T any](elements []any) ([]T, bool) {
	out := make([]T, len(elements))
	for i, e := range elements {
		v, ok := e.(T)
		if !ok {
			return nil, false
		}
		out[i] = v
	}
	return out, true
}
