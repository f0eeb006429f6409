package goldenfile_test

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/cage-qat/cage/internal/goldenfile"
)

const sample = `{"format": 1, "name": "n", "description": "d", "tolerance": {"abs": 1e-6, "rel": 0.1},
	"cases": [{"id": 7, "inputs": {"x": [[1, "NaN"], [null, "-Inf"]]}}], "table": [1]}`

func TestParse(t *testing.T) {
	f, err := goldenfile.Parse([]byte(sample))
	if err != nil {
		t.Fatal(err)
	}
	if f.Name != "n" || f.Description != "d" || f.Tolerance != (goldenfile.Tolerance{Abs: 1e-6, Rel: 0.1}) || len(f.Cases) != 1 || f.Fields["table"] == nil {
		t.Errorf("got %+v", f)
	}
	if id, err := goldenfile.Text(f.Cases[0]["id"]); err != nil || id != "7" {
		t.Errorf("id %q, %v", id, err)
	}
	x, err := goldenfile.NewTensor(f.Cases[0]["inputs"].(map[string]any)["x"])
	if err != nil || !slices.Equal(x.Shape, []int{2, 2}) {
		t.Fatalf("%v, %v", x, err)
	}
	want := []float64{1, math.NaN(), math.NaN(), math.Inf(-1)}
	if err := (goldenfile.Tolerance{}).Compare(x.Data, goldenfile.Tensor{Shape: []int{4}, Data: want}); err != nil {
		t.Error(err)
	}
}

func TestParseRefuses(t *testing.T) {
	for _, c := range []struct{ old, replacement, says string }{
		{`"format": 1`, `"format": 2`, "format: is 2, want 1"},
		{`"name": "n"`, `"nam": "n"`, "name: is null or absent, want a string"},
		{`"description": "d"`, `"description": []`, "description: is a list, want a string"},
		{`"abs": 1e-6`, `"abs": -1`, "tolerance: abs: is -1, want a number of at least 0"},
		{`"id": 7, `, ``, "cases[0].id: is null or absent"},
		{`"inputs"`, `"input"`, `cases[0] (7): unknown key "input"`},
		{`"table": [1]}`, `"table": [1]`, "not a JSON object"},
		{`"table": [1]}`, `"table": [1]} []`, "something follows the JSON object"},
	} {
		text := strings.Replace(sample, c.old, c.replacement, 1)
		if _, err := goldenfile.Parse([]byte(text)); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s for %s: %v, want %q", c.replacement, c.old, err, c.says)
		}
	}
}

// FuzzParse: no text makes Parse or NewTensor panic.
func FuzzParse(f *testing.F) {
	f.Add([]byte(sample))
	f.Add([]byte("null"))
	f.Add([]byte(`{"format": 1, "cases": [[]]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		parsed, err := goldenfile.Parse(text)
		if err != nil {
			return
		}
		for _, v := range parsed.Fields {
			_, _ = goldenfile.NewTensor(v)
		}
	})
}
