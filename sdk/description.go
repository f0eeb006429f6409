package sdk

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
)

// Description is a plugin's description of itself.
type Description struct {
	// Name is the plugin's own name: lower-case letters, digits, - and _.
	Name string
	// Version is the version of the implementation, as free text.
	Version string
	// Doc describes the algorithm in a sentence or two, with its source.
	Doc string
	// Parameters declares all settings that a run may give.
	Parameters []Parameter
	// Claims lists properties of the algorithm beyond the interface that the conformance kit
	// checks or allows. Most plugins need none.
	Claims []Claim
}

// Type is the type of a plugin parameter.
type Type string

// The types of parameters, named as in TOML.
const (
	TypeInt    Type = "integer"
	TypeFloat  Type = "float"
	TypeBool   Type = "boolean"
	TypeString Type = "string"
)

// Parameter declares one setting of a plugin.
type Parameter struct {
	Name string
	Type Type
	// Default is an int, float64, bool or string according to Type.
	Default any
	// Min and Max bound numbers, inclusive.
	Min, Max float64
	// Choices lists the accepted strings; empty accepts any.
	Choices []string
	// Doc describes the parameter in one line.
	Doc string
}

// Int declares an integer between min and max.
func Int(name string, def, min, max int, doc string) Parameter {
	return Parameter{Name: name, Type: TypeInt, Default: def,
		Min: float64(min), Max: float64(max), Doc: doc}
}

// Float declares a number between min and max; an infinite bound means no bound.
func Float(name string, def, min, max float64, doc string) Parameter {
	return Parameter{Name: name, Type: TypeFloat, Default: def, Min: min, Max: max, Doc: doc}
}

// Bool declares a switch.
func Bool(name string, def bool, doc string) Parameter {
	return Parameter{Name: name, Type: TypeBool, Default: def, Doc: doc}
}

// Choice declares a string that is one of choices.
func Choice(name, def string, choices []string, doc string) Parameter {
	return Parameter{Name: name, Type: TypeString, Default: def, Choices: choices, Doc: doc}
}

// String declares a free string.
func String(name, def, doc string) Parameter {
	return Parameter{Name: name, Type: TypeString, Default: def, Doc: doc}
}

// Range describes the accepted values, for example "2 to 8" or "paper, official".
func (p Parameter) Range() string {
	switch p.Type {
	case TypeBool:
		return "true or false"
	case TypeString:
		if len(p.Choices) == 0 {
			return "any string"
		}
		return strings.Join(p.Choices, ", ")
	}
	bound := func(x float64) string {
		if p.Type == TypeInt {
			return strconv.FormatFloat(x, 'f', -1, 64) // without an exponent, even if it is large
		}
		return fmt.Sprint(x)
	}
	switch lo, hi := math.IsInf(p.Min, -1), math.IsInf(p.Max, 1); {
	case lo && hi:
		return "any number"
	case lo:
		return "at most " + bound(p.Max)
	case hi:
		return "at least " + bound(p.Min)
	}
	return bound(p.Min) + " to " + bound(p.Max)
}

// Convert checks v against the declaration and returns it as an int, float64, bool or string. An
// integer is accepted for a float. The error describes the accepted values, without naming the
// parameter.
func (p Parameter) Convert(v any) (any, error) {
	want := "a " + string(p.Type)
	switch p.Type {
	case TypeInt:
		want = "an integer"
		if n, ok := integer(v); ok && float64(n) >= p.Min && float64(n) <= p.Max {
			return n, nil
		}
	case TypeFloat:
		n, ok := v.(float64)
		if i, isInt := integer(v); isInt {
			n, ok = float64(i), true
		}
		if ok && n >= p.Min && n <= p.Max { // NaN is in no range
			return n, nil
		}
	case TypeBool:
		if on, ok := v.(bool); ok {
			return on, nil
		}
	case TypeString:
		if s, ok := v.(string); ok && (len(p.Choices) == 0 || slices.Contains(p.Choices, s)) {
			return s, nil
		}
	}
	return nil, fmt.Errorf("got %s, want %s: %s", literal(v), want, p.Range())
}

// check is like [Parameter.Convert], for values in a description: an int64, which only
// configurations contain, could not be sent to the host.
func (p Parameter) check(v any) error {
	if _, ok := v.(int64); ok {
		return errors.New("got an int64, want an int")
	}
	_, err := p.Convert(v)
	return err
}

// literal formats a value as in TOML: 4.0 is a float, "4" a string.
func literal(v any) string {
	switch v := v.(type) {
	case string:
		return strconv.Quote(v)
	case float64:
		text := strconv.FormatFloat(v, 'g', -1, 64)
		if !strings.ContainsAny(text, ".eIN") {
			text += ".0"
		}
		return text
	}
	return fmt.Sprint(v)
}

func integer(v any) (int, bool) {
	switch n := v.(type) {
	case int:
		return n, true
	case int64:
		return int(n), int64(int(n)) == n
	}
	return 0, false
}

// Check returns an error unless names are well formed and unique, texts and lists are within the
// limits of the protocol, defaults are within their ranges, and claims are valid.
func (d Description) Check() error {
	if !wellFormed(d.Name) {
		return fmt.Errorf("plugin name %q: %s", d.Name, nameRule)
	}
	if err := cmp.Or(
		atMost(100, "bytes in its version", len(d.Version)), atMost(4096, "bytes in its doc", len(d.Doc)),
		atMost(256, "parameters", len(d.Parameters)), atMost(256, "claims", len(d.Claims))); err != nil {
		return fmt.Errorf("plugin %s: %w", d.Name, err)
	}
	seen := map[string]bool{}
	for _, p := range d.Parameters {
		if !wellFormed(p.Name) {
			return fmt.Errorf("plugin %s: parameter name %q: %s", d.Name, p.Name, nameRule)
		}
		if seen[p.Name] || slices.Contains(reserved, p.Name) {
			return fmt.Errorf("plugin %s: parameter %s: the name is used twice or reserved", d.Name, p.Name)
		}
		seen[p.Name] = true
		if err := cmp.Or(atMost(256, "choices", len(p.Choices)),
			atMost(1024, "bytes in its doc", len(p.Doc)),
			atMost(0, "line breaks in its doc", strings.Count(p.Doc, "\n"))); err != nil {
			return fmt.Errorf("plugin %s: parameter %s: %w", d.Name, p.Name, err)
		}
		if number := p.Type == TypeInt || p.Type == TypeFloat; number && !(p.Min <= p.Max) {
			return fmt.Errorf("plugin %s: parameter %s: the range from %v to %v is empty",
				d.Name, p.Name, p.Min, p.Max)
		}
		if err := p.check(p.Default); err != nil {
			return fmt.Errorf("plugin %s: parameter %s: default: %w", d.Name, p.Name, err)
		}
	}
	for _, c := range d.Claims {
		if err := c.check(d); err != nil {
			return fmt.Errorf("plugin %s: claim %s: %w", d.Name, c.Name, err)
		}
	}
	return nil
}

func atMost(limit int, what string, got int) error {
	if got > limit {
		return fmt.Errorf("got %d %s, want at most %d", got, what, limit)
	}
	return nil
}

// reserved lists the host's own keys and subtables of the tables [quantizer] and [optimizer], their
// roles, overrides and groups.
var reserved = []string{"plugin", "sha256", "weights", "activations", "keys", "values", "queries",
	"head", "gradients", "backward", "overrides", "match", "layers", "role", "from", "to", "rest",
	"refresh_delay", "groups", "roles", "rate", "weight_decay"}

const nameRule = "use lower-case letters, digits, - and _, starting with a letter"

func wellFormed(name string) bool {
	if name == "" || len(name) > 64 || name[0] < 'a' || name[0] > 'z' {
		return false
	}
	return strings.IndexFunc(name, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '-' || r == '_')
	}) < 0
}

// Resolve checks settings against the declaration and fills in the defaults. Errors are
// [*ParameterError], joined if there are several.
func (d Description) Resolve(given map[string]any) (Values, error) {
	values := make(map[string]any, len(d.Parameters))
	var errs []error
	known := map[string]bool{}
	for _, p := range d.Parameters {
		known[p.Name] = true
		v, ok := given[p.Name]
		if !ok {
			v = p.Default
		}
		converted, err := p.Convert(v)
		if err != nil {
			errs = append(errs, &ParameterError{Plugin: d.Name, Name: p.Name, Known: true, Err: err})
			continue
		}
		values[p.Name] = converted
	}
	for name := range given {
		if !known[name] {
			err := errors.New("the plugin declares no such parameter")
			errs = append(errs, &ParameterError{Plugin: d.Name, Name: name, Err: err})
		}
	}
	slices.SortFunc(errs, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	if len(errs) == 1 {
		return Values{values}, errs[0]
	}
	return Values{values}, errors.Join(errs...)
}

// String formats the description: version, doc, claims, and a table of the parameters.
func (d Description) String() string {
	var s strings.Builder
	if d.Version != "" {
		fmt.Fprintf(&s, "version %s\n", d.Version)
	}
	if d.Doc != "" {
		fmt.Fprintf(&s, "%s\n", d.Doc)
	}
	for _, c := range d.Claims {
		fmt.Fprintf(&s, "claims %s\n", c)
	}
	if len(d.Parameters) == 0 {
		s.WriteString("no parameters\n")
		return s.String()
	}
	table := tabwriter.NewWriter(&s, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "parameter\ttype\tdefault\tvalues\t")
	for _, p := range d.Parameters {
		fmt.Fprintf(table, "%s\t%s\t%v\t%s\t%s\n", p.Name, p.Type, p.Default, p.Range(), p.Doc)
	}
	table.Flush()
	return s.String()
}

// Names returns the names of the declared parameters.
func (d Description) Names() []string {
	names := make([]string, len(d.Parameters))
	for i, p := range d.Parameters {
		names[i] = p.Name
	}
	return names
}

// Values holds the settings of a plugin for one site or tensor: an int, float64, bool or string for
// each declared parameter. Reading an undeclared name, or a value as another type, is a mistake in
// the plugin and panics; the SDK turns the panic into an error that names the parameter.
type Values struct{ m map[string]any }

// NewValues returns unchecked values, for tests. Hosts use [Description.Resolve].
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
		panic(fmt.Sprintf("the plugin reads the parameter %q as %T, but declares it as %T",
			name, typed, raw))
	}
	return typed
}
