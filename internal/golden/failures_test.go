package golden

import (
	"fmt"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// recorder stands in for a test so that failures can be looked at.
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
		"missing key":     {func(c Case) { c.Params.Int("bit") }, []string{"cases[one].params", `"bit"`, "bits"}},
		"wrong type":      {func(c Case) { c.Params.Int("form") }, []string{"cases[one].params.form", `the string "paper"`, "whole number"}},
		"fraction":        {func(c Case) { c.Params.Int("k") }, []string{"params.k", "0.5"}},
		"ragged":          {func(c Case) { c.Inputs.Array("ragged") }, []string{"inputs.ragged", "[1]", "shape [2]"}},
		"number and list": {func(c Case) { c.Inputs.Array("mixed") }, []string{"inputs.mixed", "[1]"}},
		"not an object":   {func(c Case) { c.Params.Object("list") }, []string{"params.list", "a list", "want an object"}},
		"far":             {func(c Case) { c.Expected.Close("sigma", []float64{3}) }, []string{"expected.sigma", "got 3", "want 2"}},
		"codes":           {func(c Case) { c.Expected.Exact("codes", []float64{0, 1, -3}) }, []string{"expected.codes", "[2]", "got -3"}},
		"in a list":       {func(c Case) { c.Expected.List("steps")[0].Close("x", []float64{1, 3}) }, []string{"expected.steps[0].x", "got 3"}},
		"too tight":       {func(c Case) { c.Expected.CloseWithin(Tolerance{}, "sigma", []float64{2.0001}) }, []string{"expected.sigma"}},
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
	if errors := record(func(tb testing.TB) { Load(tb, filepath.Join(t.TempDir(), "absent.json")) }); len(errors) != 1 {
		t.Errorf("an absent file reported %q", errors)
	}
	if errors := record(func(tb testing.TB) { f.Case(tb, "one").Expected.Close("sigma", []float64{2.001}) }); len(errors) != 0 {
		t.Errorf("a value within the tolerance reported %q", errors)
	}
}
