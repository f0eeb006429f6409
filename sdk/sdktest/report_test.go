package sdktest_test

import (
	"encoding/json"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cage-qat/cage/sdk"
	"github.com/cage-qat/cage/sdk/program"
	"github.com/cage-qat/cage/sdk/sdktest"
)

func number(v float64) *sdktest.Number {
	n := sdktest.Number(v)
	return &n
}

var report = sdktest.Report{
	Plugin: "quest", Version: "1.0", Kind: sdk.KindQuantizer, Machines: []string{"reference", "cpu"},
	Settings: map[string]any{"bits": 3.0, "form": "paper"},
	Checks: []sdktest.Check{
		{Name: "shapes", Status: sdktest.Pass, Asks: "programs", Tried: 32},
		{Name: "zeros", Status: sdktest.Fail, Asks: "zeros stay zeros", Tried: 8, Failed: 3,
			Failures: []sdktest.Failure{
				{Message: "value", Machine: "cpu", Role: "weight", Shape: []int{4, 33},
					Settings: map[string]any{"trust": sdktest.Number(math.Inf(1))},
					Index:    []int{1, 2}, Got: number(math.NaN()), Want: number(0.1)},
				{Message: "no codes"},
			}},
		{Name: "unpack", Status: sdktest.Skip, Asks: "bits", Notes: []string{"not a packer", "…"}},
	},
}

func TestReportText(t *testing.T) {
	want := `quantizer quest 1.0 with bits=3 form=paper, on reference and cpu

pass  shapes  32 tried
fail  zeros   3 of 8; required: zeros stay zeros
      on cpu, weight [4 33], trust=Inf: value at [1 2]: got NaN, want 0.1
      no codes
      and 1 more
skip  unpack  not a packer; …

1 checks passed, 1 failed, 1 skipped
`
	if diff := cmp.Diff(want, report.String()); diff != "" {
		t.Error(diff)
	}
}

// TestFailureText checks that a failure of a single number shows no index, but the input if there
// is one.
func TestFailureText(t *testing.T) {
	for want, f := range map[string]sdktest.Failure{
		"on reference: value at [1 2], where x is 0.3: got NaN, want 0.1": {Machine: "reference",
			Message: "value", Index: []int{1, 2},
			Input: number(0.3), Got: number(math.NaN()), Want: number(0.1)},
		"value of an entry, where x is -0.5: got 0, want -1": {Message: "value of an entry",
			Index: []int{}, Input: number(-0.5), Got: number(0), Want: number(-1)},
		"gradient by s: got 0, want 1": {Message: "gradient by s", Index: []int{},
			Got: number(0), Want: number(1)},
	} {
		if got := f.String(); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
}

// TestFailuresTellTheInput checks that failures in a whole report show the input.
func TestFailuresTellTheInput(t *testing.T) {
	floors := broken(func(q *rows) { q.round = program.Value.Floor })
	r := sdktest.CheckQuantizer(sdktest.NewQuantizer(floors))
	for _, c := range r.Checks {
		for _, f := range c.Failures {
			if text := f.String(); strings.Contains(text, "at []") || f.Got != nil && f.Input == nil {
				t.Errorf("%s: %s", c.Name, text)
			}
		}
	}
	if text := r.String(); !strings.Contains(text, "value of an entry for which there is a nearer "+
		"level (if this is intended, claim any_rounding), where x is ") {
		t.Error(text)
	}
}

func TestReportJSON(t *testing.T) {
	text, err := json.Marshal(report)
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{`"got":"NaN"`, `"want":0.1`, `"trust":"Inf"`, `"status":"skip"`} {
		if !strings.Contains(string(text), part) {
			t.Errorf("%s is not in %s", part, text)
		}
	}
	var back sdktest.Report
	if err := json.Unmarshal(text, &back); err != nil {
		t.Fatal(err)
	}
	if got := float64(*back.Checks[1].Failures[0].Got); !math.IsNaN(got) {
		t.Errorf("NaN came back as %v", got)
	}
	if !back.Failed() {
		t.Error("the report that came back has not failed")
	}
}

func TestNumber(t *testing.T) {
	for _, v := range []float64{0, -1.5, 1e300, math.Inf(1), math.Inf(-1)} {
		text, err := json.Marshal(sdktest.Number(v))
		if err != nil {
			t.Fatal(err)
		}
		var back sdktest.Number
		if err := json.Unmarshal(text, &back); err != nil || float64(back) != v {
			t.Errorf("%v → %s → %v, %v", v, text, back, err)
		}
	}
	var n sdktest.Number
	for _, text := range []string{`"one"`, `"1"`, `[]`, `{}`} {
		if err := json.Unmarshal([]byte(text), &n); err == nil {
			t.Errorf("%s is read as %v", text, n)
		}
	}
}
