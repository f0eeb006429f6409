package plaintoml

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const around = `
title = "x"
[outer]
list = [1, 2e0, "three"]
[[outer.many]]
set = {"train.steps" = 7, method.form = "off", quantizer = {plugin = "absmax", bits = 3}}
[[outer.many]]
[outer.many.set]
schedule.rate = 1e-3
[[outer.many.set.quantizer.overrides]]
match = "a*"
plugin = "none"
[inner]
seed = 3
[inner.model]
layers = "four"
`

func document(t testing.TB, text string) *Document {
	t.Helper()
	doc, err := Parse("doc.toml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return doc
}

func TestDocumentPlaces(t *testing.T) {
	doc := document(t, around)
	for key, line := range map[string]int{
		"title": 2, "outer": 3, "outer.list": 4, "outer.list[1]": 4, "outer.many": 5, "outer.many[1]": 7,
		"outer.many[0].set": 6, "outer.many[1].set.schedule.rate": 9, "outer.many[1].nothing": 7,
		"nothing": 1, "": 1,
	} {
		if e := doc.ErrorAt(key, "wrong"); e.Line != line || e.File != "doc.toml" || e.Key != key ||
			e.Msg != "wrong" {
			t.Errorf("%q: %+v, want line %d", key, e, line)
		}
	}
	cause := errors.New("cause")
	if e := doc.ErrorAt("title", "it is %w", cause); !errors.Is(e, cause) || e.Msg != "it is cause" {
		t.Errorf("%v", e)
	}
	for key, want := range map[string]string{"title": "x", "outer.list[0]": "1",
		"outer.list[1]": "2e0", "outer.list[2]": "three"} {
		if got, ok := doc.Scalar(key); !ok || got != want {
			t.Errorf("%s is %q, want %q", key, got, want)
		}
	}
	if got, ok := doc.Scalar("outer"); ok {
		t.Errorf("a table is the scalar %q", got)
	}
}

func TestDocumentSettings(t *testing.T) {
	doc := document(t, around)
	many := doc.Values()["outer"].(map[string]any)["many"].([]map[string]any)
	for i, want := range [][]Setting{
		{
			{"train.steps", int64(7), "doc.toml", 6}, {"method.form", "off", "doc.toml", 6},
			{"quantizer", map[string]any{"plugin": "absmax", "bits": int64(3)}, "doc.toml", 6},
		}, {
			{"schedule.rate", 0.001, "doc.toml", 9},
			{"quantizer.overrides[0].match", "a*", "doc.toml", 11},
			{"quantizer.overrides[0].plugin", "none", "doc.toml", 12},
		},
	} {
		got := doc.Settings(Indexed("outer.many", i)+".set", many[i]["set"].(map[string]any))
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%d (-want +got):\n%s", i, diff)
		}
	}
}

// TestSettingsOfOneTable checks that the work for the settings of a table does not grow with the
// other tables of the document: a study has one table per cell.
func TestSettingsOfOneTable(t *testing.T) {
	many := strings.Repeat("many", 10) // Go concatenates short strings without allocations
	allocations := func(tables int) float64 {
		doc := document(t, strings.Repeat("[["+many+"]]\nx = 1\ny = 2\n", tables))
		// A collection empties the pools of fmt, an allocation more: the mean of 100 hides it.
		return testing.AllocsPerRun(100, func() { doc.Settings(many+"[0]", map[string]any{}) })
	}
	if few, many := allocations(1), allocations(1000); many > few {
		t.Errorf("%v allocations beside 999 other tables, %v without", many, few)
	}
}

func TestSettingText(t *testing.T) {
	for _, c := range []struct {
		value any
		want  string
	}{
		{int64(3), "3"}, {3.0, "3.0"}, {"a\"b\n", `"a\"b\n"`}, {true, "true"},
		{[]any{int64(1), "x", []any{}}, `[1, "x", []]`},
		{map[string]any{"b": int64(1), "a c": map[string]any{}}, `{"a c" = {}, b = 1}`},
		{[]map[string]any{{"x": 1.5}}, `[{x = 1.5}]`},
	} {
		if got := (Setting{Value: c.value}).Text(); got != c.want {
			t.Errorf("%v is %s, want %s", c.value, got, c.want)
		}
	}
}
