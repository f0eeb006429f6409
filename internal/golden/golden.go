// Package golden reads reference values, computed by an independent
// implementation, that tests compare this project's results with.
//
// A golden file is one JSON object: a format number, a name, a description, a
// tolerance, and either a list of cases (id, params, inputs, expected) or named
// tables beside it. Numbers that JSON cannot hold are the strings "NaN", "Inf"
// and "-Inf"; an absent number is null; matrices are lists of rows.
//
// The package is for tests only. It knows the envelope and nothing of any
// algorithm; values it hands out are bound to the running test, so that a
// missing key, a wrong type or a ragged matrix ends that test with the path of
// the offending value instead of an error to check after every line.
package golden

import (
	"os"
	"strconv"
	"testing"

	"github.com/cage-qat/cage/internal/goldenfile"
)

// File is one golden file. It is read-only once loaded and may be shared by
// subtests that run in parallel.
type File struct {
	Name        string    // name of the algorithm, as the file states it
	Description string    // one line on what the file holds
	Tolerance   Tolerance // the tolerance that the file's author states for its values

	fields map[string]any // the whole top-level object
	cases  []map[string]any
}

// Load reads and checks the golden file at path, and fails the test at once
// when that is impossible.
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

// Parse reads a golden file from its bytes. The error says which key is wrong.
func Parse(data []byte) (*File, error) {
	f, err := goldenfile.Parse(data)
	if err != nil {
		return nil, err
	}
	return &File{Name: f.Name, Description: f.Description, Tolerance: f.Tolerance, fields: f.Fields, cases: f.Cases}, nil
}

// Case is one case of a golden file, bound to the test that reads it.
type Case struct {
	ID       string
	Params   Object // settings of the algorithm
	Inputs   Object // what it is given
	Expected Object // what it must return
}

// Run runs fn once per case, each in a subtest that carries the case's id.
// A file without cases fails the test: a comparison of nothing proves nothing.
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

// Case returns the case with the given id and fails the test if there is none.
func (f *File) Case(t testing.TB, id string) Case {
	t.Helper()
	for _, m := range f.cases {
		if m["id"] == id {
			return f.object(t, "cases["+id+"]", m).Case()
		}
	}
	t.Fatalf("golden: %s has no case %q", f.Name, id)
	return Case{}
}

// IDs returns the ids of all cases in the order of the file.
func (f *File) IDs() []string {
	ids := make([]string, len(f.cases))
	for i, m := range f.cases {
		ids[i] = m["id"].(string)
	}
	return ids
}

// Top returns the file's top-level object, bound to t: the way to the tables
// and constants that stand beside the cases.
func (f *File) Top(t testing.TB) Object {
	return f.object(t, "", f.fields)
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
