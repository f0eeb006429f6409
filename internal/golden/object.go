package golden

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// Object is a JSON object of a golden file, bound to a test. Its getters fail
// that test at once (t.Fatal) when the key is missing or of another type.
type Object struct {
	t         testing.TB
	path      string
	tolerance Tolerance
	fields    map[string]any
}

// Case reads the object as a case: id, params, inputs, expected. Absent parts
// are empty objects.
func (o Object) Case() Case {
	o.t.Helper()
	part := func(key string) Object {
		if !o.Has(key) {
			return o.child(key, map[string]any{})
		}
		return o.Object(key)
	}
	c := Case{Params: part("params"), Inputs: part("inputs"), Expected: part("expected")}
	if o.Has("id") {
		c.ID = o.String("id")
	}
	return c
}

// Has reports whether the object has the key, with a value other than null.
func (o Object) Has(key string) bool { return o.fields[key] != nil }

// Keys returns the object's keys, sorted.
func (o Object) Keys() []string { return slices.Sorted(maps.Keys(o.fields)) }

// Float returns the number at key; "NaN", "Inf" and "-Inf" are numbers, null is NaN.
func (o Object) Float(key string) float64 {
	o.t.Helper()
	return get(o, key, asFloat)
}

// FloatOr is Float, or def where the object lacks the key.
func (o Object) FloatOr(key string, def float64) float64 {
	o.t.Helper()
	return getOr(o, key, def, asFloat)
}

// Int returns the whole number at key.
func (o Object) Int(key string) int {
	o.t.Helper()
	return get(o, key, asInt)
}

// IntOr is Int, or def where the object lacks the key.
func (o Object) IntOr(key string, def int) int {
	o.t.Helper()
	return getOr(o, key, def, asInt)
}

// Bool returns the truth value at key.
func (o Object) Bool(key string) bool {
	o.t.Helper()
	return get(o, key, asBool)
}

// BoolOr is Bool, or def where the object lacks the key.
func (o Object) BoolOr(key string, def bool) bool {
	o.t.Helper()
	return getOr(o, key, def, asBool)
}

// String returns the text at key. A number gives its literal, because some
// settings are written either way (a mode is "full" or 128).
func (o Object) String(key string) string {
	o.t.Helper()
	return get(o, key, asString)
}

// StringOr is String, or def where the object lacks the key.
func (o Object) StringOr(key, def string) string {
	o.t.Helper()
	return getOr(o, key, def, asString)
}

// Tensor returns the number, list, matrix, … at key as a flat array with its
// shape. A null inside is NaN. A ragged list fails the test: read it with Lists.
func (o Object) Tensor(key string) Tensor {
	o.t.Helper()
	return get(o, key, asTensor)
}

// Lists returns the list of lists of numbers at key, whose rows may differ in
// length.
func (o Object) Lists(key string) [][]float64 {
	o.t.Helper()
	return get(o, key, func(v any) ([][]float64, error) {
		list, ok := v.([]any)
		if !ok {
			return nil, fmt.Errorf("is %s, want a list of lists", kind(v))
		}
		rows := make([][]float64, len(list))
		for i, item := range list {
			row, err := asTensor(item)
			if err != nil || row.Rank() != 1 {
				return nil, fmt.Errorf("[%d]: is not a list of numbers", i)
			}
			rows[i] = row.Data
		}
		return rows, nil
	})
}

// Object returns the object at key.
func (o Object) Object(key string) Object {
	o.t.Helper()
	return get(o, key, func(v any) (Object, error) {
		m, ok := v.(map[string]any)
		if !ok {
			return Object{}, fmt.Errorf("is %s, want an object", kind(v))
		}
		return o.child(key, m), nil
	})
}

// List returns the list of objects at key.
func (o Object) List(key string) []Object {
	o.t.Helper()
	return get(o, key, func(v any) ([]Object, error) {
		list, ok := v.([]any)
		if !ok {
			return nil, fmt.Errorf("is %s, want a list of objects", kind(v))
		}
		objects := make([]Object, len(list))
		for i, item := range list {
			m, ok := item.(map[string]any)
			if !ok {
				return nil, fmt.Errorf("[%d]: is %s, want an object", i, kind(item))
			}
			objects[i] = o.child(key+"["+strconv.Itoa(i)+"]", m)
		}
		return objects, nil
	})
}

// Map returns the object's scalar entries as Go values (int, float64, bool,
// string), the form in which settings are handed to code under test. Integers
// stay integers; entries that are lists, objects or null are left out.
func (o Object) Map() map[string]any {
	out := make(map[string]any, len(o.fields))
	for key, v := range o.fields {
		switch v := v.(type) {
		case bool:
			out[key] = v
		case json.Number:
			if n, err := strconv.Atoi(v.String()); err == nil {
				out[key] = n
			} else if x, err := v.Float64(); err == nil {
				out[key] = x
			}
		case string:
			if x, ok := nonFinite(v); ok {
				out[key] = x
			} else {
				out[key] = v
			}
		}
	}
	return out
}

func (o Object) child(key string, m map[string]any) Object {
	sep := "."
	if strings.HasSuffix(o.path, ".") {
		sep = ""
	}
	return Object{t: o.t, path: o.path + sep + key, tolerance: o.tolerance, fields: m}
}

// get converts the value at key and ends the test where that fails.
func get[T any](o Object, key string, convert func(any) (T, error)) T {
	o.t.Helper()
	v, ok := o.fields[key]
	if !ok {
		o.t.Fatalf("golden: %s has no key %q; it has %v", o.path, key, o.Keys())
	}
	x, err := convert(v)
	if err != nil {
		o.t.Fatalf("golden: %s.%s: %v", strings.TrimSuffix(o.path, "."), key, err)
	}
	return x
}

func getOr[T any](o Object, key string, def T, convert func(any) (T, error)) T {
	o.t.Helper()
	if _, ok := o.fields[key]; !ok {
		return def
	}
	return get(o, key, convert)
}

func asFloat(v any) (float64, error) {
	switch v := v.(type) {
	case nil:
		return math.NaN(), nil
	case json.Number:
		return v.Float64()
	case string:
		if x, ok := nonFinite(v); ok {
			return x, nil
		}
	}
	return 0, fmt.Errorf("is %s, want a number", kind(v))
}

func asInt(v any) (int, error) {
	n, ok := v.(json.Number)
	if !ok {
		return 0, fmt.Errorf("is %s, want a whole number", kind(v))
	}
	if i, err := strconv.Atoi(n.String()); err == nil {
		return i, nil
	}
	x, err := n.Float64()
	if err != nil || x != math.Trunc(x) || math.Abs(x) > 1<<53 {
		return 0, fmt.Errorf("is %s, want a whole number", n)
	}
	return int(x), nil
}

func asBool(v any) (bool, error) {
	b, ok := v.(bool)
	if !ok {
		return false, fmt.Errorf("is %s, want true or false", kind(v))
	}
	return b, nil
}

func asString(v any) (string, error) {
	switch v := v.(type) {
	case string:
		return v, nil
	case json.Number:
		return v.String(), nil
	}
	return "", fmt.Errorf("is %s, want a string", kind(v))
}

func nonFinite(s string) (float64, bool) {
	switch s {
	case "NaN":
		return math.NaN(), true
	case "Inf":
		return math.Inf(1), true
	case "-Inf":
		return math.Inf(-1), true
	}
	return 0, false
}

// kind names the JSON type of v for error messages.
func kind(v any) string {
	switch v := v.(type) {
	case nil:
		return "null or absent"
	case bool:
		return "a truth value"
	case json.Number:
		return "the number " + v.String()
	case string:
		return fmt.Sprintf("the string %q", v)
	case []any:
		return "a list"
	}
	return "an object"
}
