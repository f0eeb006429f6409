// Package golden reads golden files: reference values computed by an independent implementation.
//
// A golden file is one JSON object: a format number, a name, a description, a tolerance, and either
// a list of cases (id, params, inputs, expected) or named tables. Numbers that JSON cannot
// represent are the strings "NaN", "Inf" and "-Inf"; an absent number is null; matrices are lists
// of rows.
//
// The values of a file are bound to the running test, so that a missing key, a wrong type or a
// ragged matrix fails that test with the path of the value, and callers need not check errors.
package golden

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// Load reads and checks the golden file at path. It fails the test on an error.
func Load(t testing.TB, path string) *File {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("golden: %v", err)
	}
	f, err := parseFile(data)
	if err != nil {
		t.Fatalf("golden: %s: %v", path, err)
	}
	return f
}

// Case is a case of a golden file, bound to a test.
type Case struct {
	ID       string
	Params   Object // settings of the algorithm
	Inputs   Object // inputs of the algorithm
	Expected Object // expected outputs of the algorithm
}

// Run runs fn for each case in a subtest named by the case's id. It fails the test if the file has
// no cases, because nothing would be tested.
func (f *File) Run(t *testing.T, fn func(t *testing.T, c Case)) {
	t.Helper()
	if len(f.cases) == 0 {
		t.Fatalf("golden: %s has no cases", f.Name)
	}
	for _, m := range f.cases {
		o := f.object(t, "cases["+m["id"].(string)+"]", m)
		t.Run(m["id"].(string), func(t *testing.T) {
			o.t = t
			fn(t, o.Case())
		})
	}
}

// RunList runs fn for each object of the top-level list at key, in a subtest named by the object's
// "id", "name" or index.
func (f *File) RunList(t *testing.T, key string, fn func(t *testing.T, o Object)) {
	t.Helper()
	list := f.Top(t).List(key)
	if len(list) == 0 {
		t.Fatalf("golden: %s: %s is empty", f.Name, key)
	}
	for i, o := range list {
		name := strconv.Itoa(i)
		for _, key := range []string{"name", "id"} {
			if text, ok := o.fields[key].(string); ok {
				name = text
			}
		}
		t.Run(name, func(t *testing.T) {
			o.t = t
			fn(t, o)
		})
	}
}

// Top returns the file's top-level object, bound to t, for access to tables and constants.
func (f *File) Top(t testing.TB) Object {
	return f.object(t, "", f.Fields)
}

func (f *File) object(t testing.TB, path string, m map[string]any) Object {
	return Object{t: t, path: f.Name + "." + path, tolerance: f.Tolerance, fields: m}
}

// Object is a JSON object in a golden file, bound to a test. Its getters end that test with t.Fatal
// if the key is missing or has another type.
type Object struct {
	t         testing.TB
	path      string
	tolerance Tolerance
	fields    map[string]any
}

// Case reads the object as a case with id, params, inputs and expected. Missing parts are empty
// objects.
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

// Has reports whether the object has a value other than null at key.
func (o Object) Has(key string) bool { return o.fields[key] != nil }

// Keys returns the object's keys, sorted.
func (o Object) Keys() []string { return slices.Sorted(maps.Keys(o.fields)) }

// Float returns the number at key. "NaN", "Inf" and "-Inf" are numbers, and null is NaN.
func (o Object) Float(key string) float64 {
	o.t.Helper()
	return get(o, key, toFloat)
}

// FloatOr is like Float, but returns def if the object lacks the key.
func (o Object) FloatOr(key string, def float64) float64 {
	o.t.Helper()
	return getOr(o, key, def, toFloat)
}

// Int returns the integer at key.
func (o Object) Int(key string) int {
	o.t.Helper()
	return get(o, key, toInt)
}

// Bool returns the bool at key.
func (o Object) Bool(key string) bool {
	o.t.Helper()
	return get(o, key, toBool)
}

// String returns the string at key. It returns a number as written, because some settings can be
// either (a mode is "full" or 128).
func (o Object) String(key string) string {
	o.t.Helper()
	return get(o, key, toText)
}

// StringOr is like String, but returns def if the object lacks the key.
func (o Object) StringOr(key, def string) string {
	o.t.Helper()
	return getOr(o, key, def, toText)
}

// Array returns the number or nested list at key as a flat array with a shape. null is NaN. A
// ragged list fails the test; use Lists for it.
func (o Object) Array(key string) Array {
	o.t.Helper()
	return get(o, key, toArray)
}

// Lists returns the list of lists of numbers at key. Their lengths may differ.
func (o Object) Lists(key string) [][]float64 {
	o.t.Helper()
	return get(o, key, func(v any) ([][]float64, error) {
		list, ok := v.([]any)
		if !ok {
			return nil, fmt.Errorf("is %s, want a list of lists", jsonType(v))
		}
		rows := make([][]float64, len(list))
		for i, item := range list {
			row, err := toArray(item)
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
			return Object{}, fmt.Errorf("is %s, want an object", jsonType(v))
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
			return nil, fmt.Errorf("is %s, want a list of objects", jsonType(v))
		}
		objects := make([]Object, len(list))
		for i, item := range list {
			m, ok := item.(map[string]any)
			if !ok {
				return nil, fmt.Errorf("[%d]: is %s, want an object", i, jsonType(item))
			}
			objects[i] = o.child(key+"["+strconv.Itoa(i)+"]", m)
		}
		return objects, nil
	})
}

func (o Object) child(key string, m map[string]any) Object {
	sep := "."
	if strings.HasSuffix(o.path, ".") {
		sep = ""
	}
	return Object{t: o.t, path: o.path + sep + key, tolerance: o.tolerance, fields: m}
}

// get converts the value at key. It fails the test on an error.
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

// Close compares got with the numbers at key, within the file's tolerance, and reports the worst
// element as a test error. It returns whether all elements passed.
func (o Object) Close(key string, got []float64) bool {
	o.t.Helper()
	return o.CloseWithin(o.tolerance, key, got)
}

// Exact is like Close with zero tolerance, for codes, masks and other integers.
func (o Object) Exact(key string, got []float64) bool {
	o.t.Helper()
	return o.CloseWithin(Tolerance{}, key, got)
}

// CloseWithin is like Close with another tolerance, for results computed in lower precision.
// Callers should justify the tolerance.
func (o Object) CloseWithin(tol Tolerance, key string, got []float64) bool {
	o.t.Helper()
	if err := tol.Compare(got, o.Array(key)); err != nil {
		o.t.Errorf("%s.%s: %v", o.path, key, err)
		return false
	}
	return true
}
