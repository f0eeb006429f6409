// Package schema describes the keys of TOML tables: the variable that a key sets, and its range,
// default and meaning.
//
// Each package that owns a table lists the table's keys next to the variables that they set;
// host/cage, for example, lists those of [schedule]. host/train/config combines these lists, and
// uses them to read, check, write and document configurations.
package schema

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/cage-qat/cage/internal/lists"
)

// Key is one key of a table.
type Key struct {
	Name string
	// Flag is the name of the command-line flag for the key. If empty, it is Name with hyphens.
	Flag string
	// To points to the variable that the key sets: an integer, float64, bool, string, []string,
	// []float64 or []int; a *int or *float64, which is nil if the key is absent; or, for values that
	// the caller interprets, a map[string]any (a table), []map[string]any (an array of tables) or any.
	To  any
	Is  Range
	Doc string

	// For lists the kinds of models or, in [method], the methods that have the key. Nil means all.
	For []string

	// The value of an absent key is Default, or the result of Derive, which Derived describes in
	// words. If both are unset, the key is optional if Optional describes the effect of its absence,
	// and otherwise required.
	Default  any
	Derive   func() any
	Derived  string
	Optional string
}

type Type int

// TOML types. A single value is accepted as an array of one element, and an integer as a number.
const (
	Integer Type = iota
	Number
	Text
	Texts
	Numbers
	Integers
	Boolean
	Table
	Tables
	Any
)

// variable returns the variable at To. If that is a pointer, it returns the variable to which the
// pointer points, allocating it if make is set.
func (k Key) variable(make bool) reflect.Value {
	v := reflect.ValueOf(k.To).Elem()
	if v.Kind() != reflect.Pointer {
		return v
	}
	if make {
		v.Set(reflect.New(v.Type().Elem()))
	}
	return v.Elem()
}

// Type returns the key's TOML type, given by the type of its variable.
func (k Key) Type() Type {
	t := reflect.TypeOf(k.To).Elem()
	switch t.Kind() {
	case reflect.Slice:
		switch t.Elem().Kind() {
		case reflect.String:
			return Texts
		case reflect.Int:
			return Integers
		case reflect.Map:
			return Tables
		}
		return Numbers
	case reflect.Map:
		return Table
	case reflect.Interface:
		return Any
	case reflect.Pointer:
		t = t.Elem()
	}
	switch t.Kind() {
	case reflect.String:
		return Text
	case reflect.Float64:
		return Number
	case reflect.Bool:
		return Boolean
	}
	return Integer
}

// Belongs reports whether the key exists for a kind of model or, in [method], for a method.
func (k Key) Belongs(to string) bool { return k.For == nil || slices.Contains(k.For, to) }

// Set sets the variable to a default or to a value returned by [Key.Accept].
func (k Key) Set(value any) {
	in, v := reflect.ValueOf(value), k.variable(true)
	if in.Kind() == reflect.Slice && !in.IsNil() { // the variable gets a list of its own
		in = reflect.AppendSlice(reflect.MakeSlice(in.Type(), 0, in.Len()), in)
	}
	v.Set(in.Convert(v.Type()))
}

// Value returns the variable's value as an int64, float64, bool, string, []string, []float64 or
// []int, or nil if the variable is a nil pointer or slice.
func (k Key) Value() any {
	return plain(k.variable(false))
}

// DefaultValue returns Default, converted as by [Key.Value].
func (k Key) DefaultValue() any {
	v := reflect.ValueOf(k.Default)
	if t := reflect.TypeOf(k.To).Elem(); v.IsValid() && t.Kind() != reflect.Pointer {
		v = v.Convert(t)
	}
	return plain(v)
}

func plain(v reflect.Value) any {
	switch {
	case !v.IsValid() || v.Kind() == reflect.Slice && v.IsNil():
		return nil
	case v.CanInt():
		return v.Int()
	case v.CanFloat():
		return v.Float()
	case v.Kind() == reflect.String:
		return v.String()
	}
	return v.Interface()
}

// Accept converts a TOML value to the key's Go type: int64, float64, bool, string, []string,
// []float64, []int, map[string]any or []map[string]any. It returns false if the value has the wrong
// type or is out of range.
func (k Key) Accept(raw any) (any, bool) {
	var v any
	var ok bool
	switch k.Type() {
	case Integer:
		v, ok = raw.(int64)
	case Number:
		v, ok = number(raw)
	case Text:
		v, ok = raw.(string)
	case Boolean:
		v, ok = raw.(bool)
	case Texts:
		v, ok = list(raw, func(e any) (string, bool) { s, ok := e.(string); return s, ok })
	case Numbers:
		v, ok = list(raw, number)
	case Integers:
		v, ok = list(raw, func(e any) (int, bool) { n, ok := e.(int64); return int(n), ok })
	case Table:
		v, ok = raw.(map[string]any)
	case Tables:
		v, ok = TablesOf(raw)
	case Any:
		v, ok = raw, true
	}
	return v, ok && (k.Is.holds == nil || k.Is.holds(v))
}

// Read sets the variable to a TOML value. If the value is not accepted, Read returns a description
// of what was found and a hint about what is accepted.
func (k Key) Read(raw any) (found, hint string) {
	v, ok := k.Accept(raw)
	if ok {
		k.Set(v)
		return "", ""
	}
	found, hint = "found "+Describe(raw), "want "+k.Wants()
	if list, isList := raw.([]any); isList && k.takesList() {
		for _, e := range list {
			_, nested := e.([]any)
			if _, ok := k.Accept(e); nested || !ok {
				raw, found = e, found+" with "+Describe(e)
				break
			}
		}
	}
	if s, isText := raw.(string); isText && len(k.Is.Words) > 2 {
		if near := DidYouMean(s, k.Is.Words); near != "" {
			hint += "; " + near
		}
	}
	return found, hint
}

func (k Key) takesList() bool {
	return k.Type() == Texts || k.Type() == Numbers || k.Type() == Integers
}

// number converts a finite float or an integer to a float64.
func number(raw any) (float64, bool) {
	if n, ok := raw.(int64); ok {
		return float64(n), true
	}
	x, ok := raw.(float64)
	return x, ok && Finite(x)
}

// list converts an array or a single value to a slice.
func list[T any](raw any, one func(any) (T, bool)) ([]T, bool) {
	if list, ok := raw.([]T); ok {
		return list, true
	}
	elements, ok := raw.([]any)
	if !ok {
		elements = []any{raw}
	}
	out := make([]T, len(elements))
	for i, e := range elements {
		if out[i], ok = one(e); !ok {
			return nil, false
		}
	}
	return out, true
}

// Wants describes the accepted values.
func (k Key) Wants() string {
	many := k.Type() == Texts
	switch {
	case many && len(k.Is.Words) > 0:
		return "one of, or an array of, " + Quoted(k.Is.Words)
	case len(k.Is.Words) > 0:
		return "one of " + Quoted(k.Is.Words)
	}
	if k.Type() == Any && k.Is.text != "" {
		return k.Is.text
	}
	name := []string{
		Any: "a value", Integer: "an integer", Number: "a number", Text: "a string",
		Texts: "a string or an array of strings", Numbers: "an array of numbers",
		Integers: "an array of integers", Boolean: "true or false", Table: "a table",
		Tables: "an array of tables"}
	return strings.TrimSpace(name[k.Type()] + " " + k.Is.text)
}

// FlagName returns the name of the command-line flag for the key.
func (k Key) FlagName() string { return cmp.Or(k.Flag, strings.ReplaceAll(k.Name, "_", "-")) }

// Arguments returns command-line flags for the keys whose values differ from the defaults.
func Arguments(keys []Key) (args []string) {
	for _, k := range keys {
		v := k.Value()
		if v == nil || reflect.DeepEqual(v, k.DefaultValue()) {
			continue
		}
		values := []any{v}
		switch list := v.(type) {
		case []string:
			values = lists.Map(list, func(text string) any {
				if strings.ContainsAny(text, "\",\n") { // as flags take one element of a list
					text = `"` + strings.ReplaceAll(text, `"`, `""`) + `"`
				}
				return text
			})
		case []int:
			values = lists.Map(list, func(n int) any { return n })
		}
		for _, v := range values {
			args = append(args, fmt.Sprintf("--%s=%v", k.FlagName(), v))
		}
	}
	return args
}

// Problem describes a value that conflicts with the values of other keys.
type Problem struct {
	Key   string // full and dotted
	Found string
	Hint  string // what would be right
}

// Problems is a list of problems.
type Problems []Problem

// Unless appends problem if ok is false.
func (p *Problems) Unless(ok bool, problem Problem) {
	if !ok {
		*p = append(*p, problem)
	}
}
