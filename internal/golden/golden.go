// Package golden reads reference values with which tests compare this project's results.
// They were computed by an independent implementation.
//
// A golden file is one JSON object: a format number, a name, a description, a tolerance,
// and either a list of cases (id, params, inputs, expected) or named tables. Numbers that
// JSON cannot represent are the strings "NaN", "Inf" and "-Inf"; an absent number is
// null; matrices are lists of rows.
//
// The package knows the structure of the files and nothing about any algorithm. [Parse]
// returns errors; it is for the conformance kit, which runs such files on plugins. [Load]
// is for tests: the values that it returns are bound to the running test, so that a
// missing key, a wrong type or a ragged matrix ends that test with the path of the
// offending value. No errors have to be checked after every line.
package golden

import (
	"os"
	"strconv"
	"testing"
)

// Load reads and checks the golden file at path. If that is impossible, the test fails at
// once.
func Load(t testing.TB, path string) *File {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("golden: %v", err)
	}
	f, err := Parse(data)
	if err != nil {
		t.Fatalf("golden: %s: %v", path, err)
	}
	return f
}

// Case is one case of a golden file, bound to the test that reads it.
type Case struct {
	ID       string
	Params   Object // settings of the algorithm
	Inputs   Object // what the algorithm is given
	Expected Object // what the algorithm must return
}

// Run runs fn once per case, each in a subtest that carries the case's id.
// A file without cases fails the test: a comparison of nothing proves nothing.
func (f *File) Run(t *testing.T, fn func(t *testing.T, c Case)) {
	t.Helper()
	if len(f.Cases) == 0 {
		t.Fatalf("golden: %s has no cases", f.Name)
	}
	for _, m := range f.Cases {
		o := f.object(t, "cases["+m["id"].(string)+"]", m)
		t.Run(m["id"].(string), func(t *testing.T) {
			o.t = t
			fn(t, o.Case())
		})
	}
}

// RunList runs fn once per object of the top-level list at key, each in a
// subtest named by the object's "id", or by its "name", or by its index.
func (f *File) RunList(t *testing.T, key string, fn func(t *testing.T, o Object)) {
	t.Helper()
	list := f.Top(t).List(key)
	if len(list) == 0 {
		t.Fatalf("golden: %s: %s is empty", f.Name, key)
	}
	for i, o := range list {
		t.Run(o.label(i), func(t *testing.T) {
			o.t = t
			fn(t, o)
		})
	}
}

// Top returns the file's top-level object, bound to t. It gives access to the tables and
// constants beside the cases.
func (f *File) Top(t testing.TB) Object {
	return f.object(t, "", f.Fields)
}

func (f *File) object(t testing.TB, path string, m map[string]any) Object {
	return Object{t: t, path: f.Name + "." + path, tolerance: f.Tolerance, fields: m}
}

// label names the subtest of the i-th object of a list.
func (o Object) label(i int) string {
	for _, key := range []string{"id", "name"} {
		if s, ok := o.fields[key].(string); ok {
			return s
		}
	}
	return strconv.Itoa(i)
}
