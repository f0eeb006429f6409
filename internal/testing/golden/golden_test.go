package golden

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
)

const sample = `{
  "format": 1, "name": "sample", "description": "a file with one of everything",
  "tolerance": {"abs": 1e-6, "rel": 1e-3},
  "constants": [{"bits": 2, "k": 1.5}, {"bits": 3, "k": 2.5, "name": "three"}],
  "empty": [],
  "nested": {"a": [[1, 2], [3, 4]], "scaling": null},
  "cases": [
    {"id": "one",
     "params": {"bits": 4, "k": 0.5, "mode": 128, "form": "paper", "nesterov": true, "eps": "Inf", "list": [1], "whole": 2.0},
     "inputs": {"x": [[1, 2, 3], [4, "NaN", "-Inf"]], "ragged": [[1], [2, 3]], "mixed": [1, [2]], "none": []},
     "expected": {"y": [[1, 2, 3], [4, "NaN", "-Inf"]], "codes": [0, 1, -2], "exponent": [3, null], "sigma": 2,
                  "steps": [{"t": 1, "x": [1, 2]}]}},
    {"id": "two", "expected": {"y": 1}},
    {"id": 7}
  ]
}`

func parse(t *testing.T, text string) *File {
	t.Helper()
	f, err := parseFile([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func (f *File) Case(t testing.TB, id string) Case {
	t.Helper()
	for _, m := range f.cases {
		if m["id"] == id {
			return f.object(t, "cases["+id+"]", m).Case()
		}
	}
	t.Fatalf("there is no case %q", id)
	return Case{}
}

// ids returns the ids of the cases in the order of the file.
func ids(f *File) (list []string) {
	for _, c := range f.cases {
		list = append(list, c["id"].(string))
	}
	return list
}

func TestEnvelope(t *testing.T) {
	f := parse(t, sample)
	if f.Name != "sample" || f.Description != "a file with one of everything" {
		t.Errorf("name %q, description %q", f.Name, f.Description)
	}
	if f.Tolerance != (Tolerance{Abs: 1e-6, Rel: 1e-3}) {
		t.Errorf("tolerance %v", f.Tolerance)
	}
	if got := ids(f); !slices.Equal(got, []string{"one", "two", "7"}) {
		t.Errorf("ids %v", got)
	}
}

func TestGetters(t *testing.T) {
	f := parse(t, sample)
	c := f.Case(t, "one")
	p := c.Params
	if c.ID != "one" || p.Int("bits") != 4 || p.Float("bits") != 4 || p.Float("k") != 0.5 ||
		p.Int("whole") != 2 {
		t.Errorf("case %q: bits %d, k %v, whole %d", c.ID, p.Int("bits"), p.Float("k"), p.Int("whole"))
	}
	if p.String("mode") != "128" || p.Int("mode") != 128 || p.String("form") != "paper" ||
		!p.Bool("nesterov") {
		t.Errorf("mode %q, form %q, nesterov %v", p.String("mode"), p.String("form"), p.Bool("nesterov"))
	}
	if !math.IsInf(p.Float("eps"), 1) {
		t.Errorf("eps %v, want +Inf", p.Float("eps"))
	}
	if p.FloatOr("x", 0.5) != 0.5 || p.StringOr("y", "z") != "z" {
		t.Error("defaults are not used where, and only where, a key is missing")
	}
	top := f.Top(t)
	if list := top.List("constants"); len(list) != 2 || list[1].Float("k") != 2.5 {
		t.Error("constants are not read")
	}
	nested := top.Object("nested")
	if nested.Has("scaling") || nested.Has("b") || !nested.Has("a") || nested.Array("a").Data[2] != 3 {
		t.Error("nested object is not read")
	}
	if got := c.Inputs.Lists("ragged"); len(got) != 2 || !slices.Equal(got[1], []float64{2, 3}) {
		t.Errorf("ragged = %v", got)
	}
	if two := f.Case(t, "two"); len(two.Params.Keys()) != 0 || two.Expected.Float("y") != 1 {
		t.Error("a case without params and inputs is not read")
	}
}

func TestArray(t *testing.T) {
	c := parse(t, sample).Case(t, "one")
	x := c.Inputs.Array("x")
	if !slices.Equal(x.Shape, []int{2, 3}) || x.Rank() != 2 || x.Len() != 2 {
		t.Fatalf("shape %v", x.Shape)
	}
	if row := x.Row(1); !slices.Equal(row.Shape, []int{3}) || row.Data[0] != 4 ||
		!math.IsNaN(row.Data[1]) || !math.IsInf(row.Data[2], -1) {
		t.Errorf("row 1 = %v", row)
	}
	if s := c.Expected.Array("sigma"); s.Rank() != 0 || s.Len() != 1 || s.Data[0] != 2 {
		t.Errorf("scalar = %v", s)
	}
	if e := c.Expected.Array("exponent"); e.Data[0] != 3 || !math.IsNaN(e.Data[1]) {
		t.Errorf("null is not NaN: %v", e)
	}
	if e := c.Inputs.Array("none"); !slices.Equal(e.Shape, []int{0}) || len(e.Data) != 0 {
		t.Errorf("empty list = %v", e)
	}
	clone := x.Clone()
	clone.Data[0] = 9
	if x.Data[0] != 1 || clone.Float32()[0] != 9 {
		t.Error("a clone shares memory")
	}
}

func TestTolerance(t *testing.T) {
	nan, inf := math.NaN(), math.Inf(1)
	tests := []struct {
		tol       Tolerance
		got, want float64
		close     bool
	}{
		{Tolerance{}, 1, 1, true},
		{Tolerance{}, 1, math.Nextafter(1, 2), false},
		{Tolerance{Abs: 0.5}, 1.5, 1, true},
		{Tolerance{Abs: 0.5}, 1.75, 1, false},
		{Tolerance{Rel: 0.25}, -5, -4, true},
		{Tolerance{Rel: 0.25}, -4, -5.5, false},
		{Tolerance{Abs: 1, Rel: 0.25}, 10, 8, true},
		{Tolerance{Rel: 0.25}, 1e-300, 0, false},
		{Tolerance{Abs: 1}, nan, nan, true},
		{Tolerance{Abs: inf}, nan, 1, false},
		{Tolerance{Abs: 1}, 1, nan, false},
		{Tolerance{Abs: 1}, inf, inf, true},
		{Tolerance{Abs: 1, Rel: 1}, -inf, inf, false},
		{Tolerance{Abs: 1, Rel: 1}, 1, inf, false},
		{Tolerance{}, math.Copysign(0, -1), 0, true},
	}
	for _, test := range tests {
		if got := test.tol.excess(test.got, test.want) <= 1; got != test.close {
			t.Errorf("%+v: %v is close to %v: %v", test.tol, test.got, test.want, got)
		}
	}
}

func TestCompareNamesTheWorstElement(t *testing.T) {
	want := Array{Shape: []int{2, 2}, Data: []float64{1, 2, 3, 4}}
	err := Tolerance{Abs: 0.5}.Compare([]float64{1, 3, 8, 4}, want)
	if err == nil {
		t.Fatal("no error")
	}
	for _, part := range []string{"2 of 4", "[1 0]", "got 8", "want 3", "difference 5",
		"allowed 0.5"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q does not say %q", err, part)
		}
	}
	if err := (Tolerance{}).Compare([]float64{1, 2, 3}, want); err == nil ||
		!strings.Contains(err.Error(), "3 elements, want 4") {
		t.Errorf("a short result gives %v", err)
	}
	if err := (Tolerance{}).Compare([]float64{1, 2, 3, 4}, want); err != nil {
		t.Error(err)
	}
}

func TestRun(t *testing.T) {
	f := parse(t, sample)
	var ran []string
	f.Run(t, func(t *testing.T, c Case) {
		ran = append(ran, c.ID)
		if !strings.HasSuffix(t.Name(), "/"+c.ID) {
			t.Errorf("subtest %s runs case %s", t.Name(), c.ID)
		}
	})
	if !slices.Equal(ran, ids(f)) {
		t.Errorf("ran %v", ran)
	}
	var names []string
	f.RunList(t, "constants",
		func(t *testing.T, o Object) { names = append(names, filepath.Base(t.Name())) })
	if !slices.Equal(names, []string{"0", "three"}) {
		t.Errorf("ran %v", names)
	}
}

func TestParseRefuses(t *testing.T) {
	tests := map[string]struct{ old, new, want string }{
		"format":  {`"format": 1`, `"format": 2`, "format: is 2, want 1"},
		"no name": {`"name": "sample", `, ``, "name: is null or absent, want a string"},
		"description": {`"a file with one of everything"`, `[]`,
			"description: is a list, want a string"},
		"tolerance": {`"abs": 1e-6`, `"abs": -1`,
			"tolerance: abs: is -1, want a number of at least 0"},
		"nan":          {`"rel": 1e-3`, `"rel": "NaN"`, "rel"},
		"absent rel":   {`, "rel": 1e-3`, ``, "rel"},
		"no id":        {`"id": "two", `, ``, "cases[1].id: is null or absent"},
		"same id":      {`"id": "two"`, `"id": "one"`, "occurs twice"},
		"unknown key":  {`"inputs"`, `"input"`, `cases[0] (one): unknown key "input"`},
		"case list":    {`"cases": [`, `"cases": [1, `, "cases[0]"},
		"trailing":     {sample, sample + "{}", "unexpected data after the JSON object"},
		"cut short":    {sample, sample[:len(sample)-1], "not a JSON object"},
		"not an obect": {sample, "[]", "JSON"},
		"null":         {sample, "null", "null"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := parseFile([]byte(strings.Replace(sample, test.old, test.new, 1)))
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v, want one about %q", err, test.want)
			}
		})
	}
}

func TestLoad(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sample.json")
	if err := os.WriteFile(path, []byte(sample), 0o644); err != nil {
		t.Fatal(err)
	}
	if f := Load(t, path); len(ids(f)) != 3 {
		t.Errorf("cases %v", ids(f))
	}
}

// recorder is a test that records its failures.
type recorder struct {
	testing.TB
	errors []string
}

func (r *recorder) Helper() {}

func (r *recorder) Errorf(format string, args ...any) {
	r.errors = append(r.errors, fmt.Sprintf(format, args...))
}

func (r *recorder) Fatalf(format string, args ...any) {
	r.Errorf(format, args...)
	runtime.Goexit()
}

// record runs fn and returns the failures it reported.
func record(fn func(t testing.TB)) []string {
	r := &recorder{}
	done := make(chan struct{})
	go func() {
		defer close(done)
		fn(r)
	}()
	<-done
	return r.errors
}

func TestFailuresNameThePath(t *testing.T) {
	f := parse(t, sample)
	tests := map[string]struct {
		fn   func(c Case)
		want []string
	}{
		"missing key": {func(c Case) { c.Params.Int("bit") },
			[]string{"cases[one].params", `"bit"`, "bits"}},
		"wrong type": {func(c Case) { c.Params.Int("form") },
			[]string{"cases[one].params.form", `the string "paper"`, "integer"}},
		"fraction": {func(c Case) { c.Params.Int("k") }, []string{"params.k", "0.5"}},
		"ragged": {func(c Case) { c.Inputs.Array("ragged") },
			[]string{"inputs.ragged", "[1]", "shape [2]"}},
		"number and list": {func(c Case) { c.Inputs.Array("mixed") }, []string{"inputs.mixed", "[1]"}},
		"not an object": {func(c Case) { c.Params.Object("list") },
			[]string{"params.list", "a list", "want an object"}},
		"far": {func(c Case) { c.Expected.Close("sigma", []float64{3}) },
			[]string{"expected.sigma", "got 3", "want 2"}},
		"codes": {func(c Case) { c.Expected.Exact("codes", []float64{0, 1, -3}) },
			[]string{"expected.codes", "[2]", "got -3"}},
		"in a list": {func(c Case) { c.Expected.List("steps")[0].Close("x", []float64{1, 3}) },
			[]string{"expected.steps[0].x", "got 3"}},
		"too tight": {
			func(c Case) {
				c.Expected.CloseWithin(Tolerance{}, "sigma", []float64{2.0001})
			}, []string{"expected.sigma"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			errors := record(func(tb testing.TB) { test.fn(f.Case(tb, "one")) })
			if len(errors) != 1 {
				t.Fatalf("reported %q, want one failure", errors)
			}
			for _, part := range test.want {
				if !strings.Contains(errors[0], part) {
					t.Errorf("%q does not say %q", errors[0], part)
				}
			}
		})
	}
	if errors := record(
		func(tb testing.TB) { Load(tb, filepath.Join(t.TempDir(), "absent.json")) }); len(errors) != 1 {
		t.Errorf("an absent file reported %q", errors)
	}
	if errors := record(
		func(tb testing.TB) {
			f.Case(tb, "one").Expected.Close("sigma", []float64{2.001})
		}); len(errors) != 0 {
		t.Errorf("a value within the tolerance reported %q", errors)
	}
}
