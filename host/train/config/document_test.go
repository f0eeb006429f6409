package config

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
	doc, err := ParseDocument("doc.toml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return doc
}

func TestDocumentPlaces(t *testing.T) {
	doc := document(t, around)
	for key, line := range map[string]int{
		"title": 2, "outer": 3, "outer.list": 4, "outer.list[1]": 4, "outer.many": 5, "outer.many[1]": 7,
		"outer.many[0].set": 6, "outer.many[1].set.schedule.rate": 9, "outer.many[1].nothing": 7, "nothing": 1, "": 1,
	} {
		if e := doc.ErrorAt(key, "wrong"); e.Line != line || e.File != "doc.toml" || e.Key != key || e.Msg != "wrong" {
			t.Errorf("%q: %+v, want line %d", key, e, line)
		}
	}
	cause := errors.New("cause")
	if e := doc.ErrorAt("title", "it is %w", cause); !errors.Is(e, cause) || e.Msg != "it is cause" {
		t.Errorf("%v", e)
	}
	for key, want := range map[string]string{"title": "x", "outer.list[0]": "1", "outer.list[1]": "2e0", "outer.list[2]": "three"} {
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
			{"quantizer.overrides[0].match", "a*", "doc.toml", 11}, {"quantizer.overrides[0].plugin", "none", "doc.toml", 12},
		},
	} {
		got := doc.Settings(Indexed("outer.many", i)+".set", many[i]["set"].(map[string]any))
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%d (-want +got):\n%s", i, diff)
		}
		c, err := document(t, small).Resolve(got)
		if err != nil {
			t.Fatal(err)
		}
		if i == 0 && (c.Train.Steps != 7 || c.Method.Form != "off" || c.Quantizer.Weights.Name != "absmax") || i == 1 && len(c.Quantizer.Overrides) != 1 {
			t.Errorf("%d: %+v", i, c)
		}
	}
}

// A table of a document is a document itself, whose messages name the lines of the file.
func TestDocumentTable(t *testing.T) {
	_, err := document(t, around).Table("inner").Resolve(nil)
	var all Errors
	if !errors.As(err, &all) {
		t.Fatalf("%v", err)
	}
	want := map[string]int{"model.layers": 16, "data.train": 13}
	for _, e := range all {
		if line, ok := want[e.Key]; ok && e.Line == line && e.File == "doc.toml" {
			delete(want, e.Key)
		}
	}
	if len(want) > 0 {
		t.Errorf("not found: %v in\n%v", want, err)
	}
}

// Resolving leaves the document as it is, and does what overrides do.
func TestResolve(t *testing.T) {
	doc := document(t, small)
	settings := []Setting{{Key: "seed", Value: int64(5)}, {Key: "quantizer.bits", Value: int64(3)}, {Key: "quantizer.plugin", Value: "quest"}, {Key: "seed", Value: int64(6)}}
	var overrides []string
	for _, s := range settings {
		overrides = append(overrides, s.Key+"="+s.Text())
	}
	want, err := Parse("doc.toml", []byte(small), overrides)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		got, err := doc.Resolve(settings)
		if err != nil {
			t.Fatal(err)
		}
		if diff, err := Diff(want, got); err != nil || len(diff) > 0 {
			t.Errorf("%v, %v", diff, err)
		}
	}
	plain, err := doc.Resolve(nil)
	if err != nil || plain.Seed != 0 || plain.Quantizer.Weights != nil {
		t.Errorf("the document was changed: %+v, %v", plain, err)
	}
	for key, msg := range map[string]string{
		"":              "other.toml:9: not a key; want a dotted key",
		"a b":           "other.toml:9: a b: not a key",
		"seed = 3 #":    "other.toml:9: seed = 3 #: not a key",
		"sed":           "other.toml:9: sed: unknown key; did you mean seed?",
		"optimizer[0]":  "other.toml:9: optimizer[0]: found the integer 1",
		"seed.x":        "seed: found a table",
		"train[1].deep": "other.toml:9: train[1].deep: train is",
	} {
		_, err := doc.Resolve([]Setting{{Key: key, Value: int64(1), File: "other.toml", Line: 9}})
		if err == nil || !strings.Contains(err.Error(), msg) {
			t.Errorf("%q: %v, want %s", key, err, msg)
		}
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

// The fingerprint depends on what a run computes and records, and on nothing else.
func TestFingerprint(t *testing.T) {
	print := func(overrides ...string) string {
		t.Helper()
		c, err := Parse("x.toml", []byte(small), overrides)
		if err != nil {
			t.Fatal(err)
		}
		p, err := c.Fingerprint()
		if err != nil || len(p) != 64 {
			t.Fatalf("%q, %v", p, err)
		}
		return p
	}
	same := [][]string{{"train.out='x'"}, {"train.keep=9", "train.checkpoint_every=3", "train.checkpoint_minutes=1.5", "train.recompute='blocks'", "device.threads=2"}, {"seed=0"}}
	for _, o := range same {
		if print(o...) != print() {
			t.Errorf("%v changes it", o)
		}
	}
	if print("device={kind='cuda', cache='x', allocator='bfc', preallocate='on', memory_fraction=0.5}") != print("device={kind='cuda'}") {
		t.Error("how memory is taken and what is cached changes it")
	}
	seen := map[string]string{print(): "nothing"}
	for _, o := range []string{"seed=1", "train.eval_every=3", "train.log_every=3", "quantizer={plugin='quest'}", "quantizer={plugin='quest', bits=3}",
		"quantizer.weights={plugin='quest', bits=3}", "optimizer.betas=[0.9,0.9]", "quantizer={plugin='quest',bits=4}", "data.train='other'",
		"device={kind='cuda'}", "device={kind='cuda', precision='bfloat16'}", "device={kind='cuda', tf32='on'}",
		"device={kind='cuda', attention='plain'}", "device={kind='cuda', kernels='graph'}", "device={kind='cuda', count=2}"} {
		p := print(o)
		if other, ok := seen[p]; ok {
			t.Errorf("%s and %s have the same", o, other)
		}
		seen[p] = o
	}
}

func TestSettingsOfBothRoles(t *testing.T) {
	c, err := Parse("x.toml", []byte(small+"[quantizer]\nplugin='quest'\nbits=3\n"), nil)
	if err != nil {
		t.Fatal(err)
	}
	list, err := c.settings(false)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	for _, e := range list {
		found[e.path()] = e.value
	}
	for key, want := range map[string]string{"seed": "0", "quantizer.weights.bits": "3", "quantizer.activations.plugin": `"quest"`, "train.out": `"runs/x"`} {
		if found[key] != want {
			t.Errorf("%s is %s, want %s", key, found[key], want)
		}
	}
}
