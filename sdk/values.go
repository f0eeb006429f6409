package sdk

import (
	"fmt"
	"maps"
)

// Values are the settings of a plugin for one site or tensor: one value for each
// declared parameter. Reading a name that is not declared, or reading it as another type,
// is a mistake of the plugin's author and panics; the SDK turns the panic into an error
// that names the parameter.
type Values struct{ m map[string]any }

// NewValues makes Values from a map of int, float64, bool and string. It does not check
// them: it is for tests and for values that come over the wire. Hosts use
// [Description.Resolve], which checks.
func NewValues(m map[string]any) Values { return Values{maps.Clone(m)} }

// Map returns a copy of all values by name.
func (v Values) Map() map[string]any { return maps.Clone(v.m) }

// Int returns an integer parameter.
func (v Values) Int(name string) int { return get[int](v, name) }

// Float returns a float parameter.
func (v Values) Float(name string) float64 { return get[float64](v, name) }

// Bool returns a boolean parameter.
func (v Values) Bool(name string) bool { return get[bool](v, name) }

// Text returns a string parameter.
func (v Values) Text(name string) string { return get[string](v, name) }

func get[T any](v Values, name string) T {
	raw, ok := v.m[name]
	if !ok {
		panic(fmt.Sprintf("the plugin reads the parameter %q, which it does not declare", name))
	}
	typed, ok := raw.(T)
	if !ok {
		panic(fmt.Sprintf("the plugin reads the parameter %q as %T, but declares it as %T", name, typed, raw))
	}
	return typed
}
