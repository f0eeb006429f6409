package config

import (
	"maps"
	"reflect"

	"github.com/cage-qat/cage/internal/plaintoml"
)

// Plugin names a plugin and the parameters to give it. The parameters are not
// checked here: only the plugin knows which it takes.
type Plugin struct {
	Table  string // where it was configured, such as "quantizer.weights"
	Name   string // name, or path when it contains a slash
	SHA256 string // expected hash in lower-case hexadecimal; "": any
	// Params holds the parameters. Each is an int64, float64, string or bool. An integer is
	// not converted, even if the plugin will want a float.
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
