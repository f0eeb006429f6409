package config

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// kind is the TOML type a key wants.
type kind int

const (
	integer kind = iota
	number       // a float, or an integer that is widened
	text
	texts   // an array of strings; a single string stands for an array of one
	numbers // an array of numbers; a single number stands for an array of one
)

// field is one key of the schema. The tables of these fields are the only
// place that knows a key's type, range, default and meaning.
type field struct {
	key  string // within its table
	kind kind
	is   rule
	doc  string

	// at points to the value in the Config: *int, *int64, *float64, *string or
	// *[]float64.
	// nil for the keys of plugin tables, which are read by decoder.plugin.
	at func(*Config) any
	// in points to the value in an element of a list of tables, an *Override or a
	// *Group, or in the *Optimizer: also *[]string, **int or **float64. nil for the
	// keys of its plugin.
	in func(element any) any

	of     []string // names of the methods whose key it is; nil: of all
	models []string // kinds of the models whose key it is; nil: those of the table
	common bool     // a word so common that in another table it is not recognised

	// The default, the first of these that applies. With none the key is
	// required.
	preset  func(Preset) any     // when model.preset names one
	def     any                  // int64, float64, string or []string
	derive  func(d *decoder) any // from other keys, after these are read
	derived string               // derive in words

	// In words what holds when the key is absent and nothing is in its place.
	optional string
}

// table is a TOML table of the schema.
type table struct {
	name   string // dotted; "" for the top level
	doc    string
	fields []field

	// For the table of a plugin, whose other keys are the plugin's parameters:
	plugin  bool
	example string // a plugin's name, quoted
	absent  string // what it means when the table is absent
	short   bool   // a string in place of the table is the plugin's name

	models []string // kinds of the models that have the table; nil: all
	list   bool     // an array of tables
	sample string   // TOML that shows the use
}

// field returns the field of that key, or nil.
func (t table) field(key string) *field {
	for i := range t.fields {
		if t.fields[i].key == key {
			return &t.fields[i]
		}
	}
	return nil
}

// keys lists what may stand in the table: its fields, then its sub-tables.
func (t table) keys() []string {
	var keys []string
	for _, f := range t.fields {
		keys = append(keys, f.key)
	}
	return append(keys, t.children()...)
}

// children lists the sub-tables of a table.
func (t table) children() []string {
	var names []string
	for _, other := range schema() {
		if other.name != "" && parentKey(other.name) == t.name {
			names = append(names, other.name[strings.LastIndexByte(other.name, '.')+1:])
		}
	}
	return names
}

// wants says in words what is right for the field.
func (f field) wants() string {
	switch {
	case f.kind == texts && len(f.is.choices) > 0:
		return "one of, or an array of, " + QuotedList(f.is.choices)
	case f.kind == texts:
		return strings.TrimSpace("a string or an array of strings " + f.is.words)
	case len(f.is.choices) > 0:
		return "one of " + QuotedList(f.is.choices)
	case f.kind == integer:
		return strings.TrimSpace("an integer " + f.is.words)
	case f.kind == numbers:
		return strings.TrimSpace("an array of numbers " + f.is.words)
	case f.kind == number:
		return strings.TrimSpace("a number " + f.is.words)
	default:
		return strings.TrimSpace("a string " + f.is.words)
	}
}

// accept brings a raw TOML value to the field's type (int64, float64, string,
// []string or []float64). It is false when the type or the range is wrong.
func (f field) accept(raw any) (any, bool) {
	v := raw
	switch f.kind {
	case texts:
		v = textsOf(raw)
	case numbers:
		v = numbersOf(raw)
	}
	if n, isInt := raw.(int64); isInt && f.kind == number {
		v = float64(n)
	}
	switch x := v.(type) {
	case int64:
		if f.kind != integer {
			return nil, false
		}
	case float64:
		if f.kind != number || !finite(x) {
			return nil, false
		}
	case string:
		if f.kind != text {
			return nil, false
		}
	case []string, []float64:
		// textsOf or numbersOf has made it.
	default:
		return nil, false
	}
	return v, f.is.ok == nil || f.is.ok(v)
}

// textsOf brings a string or an array of strings to a slice; nil when it is
// something else.
func textsOf(raw any) any {
	switch v := raw.(type) {
	case string:
		return []string{v}
	case []string:
		return v
	case []any:
		if list, ok := sliceOf[string](v); ok {
			return list
		}
	}
	return nil
}

// numbersOf brings a number or an array of numbers to a slice; nil when it is
// something else, or empty.
func numbersOf(raw any) any {
	list, ok := raw.([]any)
	if !ok {
		list = []any{raw}
	}
	var values []float64
	for _, e := range list {
		switch v := e.(type) {
		case int64:
			values = append(values, float64(v))
		case float64:
			if !finite(v) {
				return nil
			}
			values = append(values, v)
		default:
			return nil
		}
	}
	if values == nil {
		return nil
	}
	return values
}

// assign stores an accepted value at a pointer that field.at returned.
func assign(to, v any) {
	switch p := to.(type) {
	case *int:
		*p = int(v.(int64))
	case *int64:
		*p = v.(int64)
	case *float64:
		*p = v.(float64)
	case *string:
		*p = v.(string)
	case *[]string:
		*p = slices.Clone(v.([]string))
	case *[]float64:
		*p = slices.Clone(v.([]float64))
	case **int:
		x := int(v.(int64))
		*p = &x
	case **float64:
		x := v.(float64)
		*p = &x
	default:
		panic(fmt.Sprintf("config: the schema points to a %T", to))
	}
}

func finite(x float64) bool { return !math.IsNaN(x) && !math.IsInf(x, 0) }

// decimal writes a number as a person would: with an exponent only when it is
// very small or large.
func decimal(x float64) string {
	format := byte('g')
	if a := math.Abs(x); a == 0 || a >= 1e-4 && a < 1e9 {
		format = 'f'
	}
	return strconv.FormatFloat(x, format, -1, 64)
}

// describeFloat keeps a float apart from an integer, as TOML does.
func describeFloat(x float64) string {
	s := strings.ToLower(strings.TrimPrefix(decimal(x), "+"))
	if finite(x) && !strings.ContainsAny(s, ".e") {
		s += ".0"
	}
	return "the float " + s
}

// Describe says what a raw TOML value is, for a message.
func Describe(raw any) string {
	switch v := raw.(type) {
	case string:
		return "the string " + strconv.Quote(clipped(v, 60))
	case int64:
		return "the integer " + strconv.FormatInt(v, 10)
	case float64:
		return describeFloat(v)
	case bool:
		return "the boolean " + strconv.FormatBool(v)
	case time.Time:
		return "a date or time"
	case []any:
		if len(v) == 0 {
			return "an empty array"
		}
		return "an array"
	case []map[string]any:
		return "an array of tables"
	case map[string]any:
		return "a table"
	default:
		return fmt.Sprintf("a %T", raw)
	}
}
