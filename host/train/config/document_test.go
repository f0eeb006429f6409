package config

import (
	"errors"
	"strings"
	"testing"

	"github.com/cage-qat/cage/internal/plaintoml"
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

func document(t testing.TB, text string) *plaintoml.Document {
	t.Helper()
	doc, err := plaintoml.Parse("doc.toml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return doc
}

// Settings of a table resolve as they stand there.
func TestResolveSettings(t *testing.T) {
	doc := document(t, around)
	for i := range 2 {
		table := plaintoml.Indexed("outer.many", i) + ".set"
		c, err := Resolve(document(t, small), doc.Settings(table, doc.Lookup("outer").(map[string]any)["many"].([]map[string]any)[i]["set"].(map[string]any)))
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
	_, err := Resolve(document(t, around).Table("inner"), nil)
	var all plaintoml.Errors
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
	settings := []plaintoml.Setting{{Key: "seed", Value: int64(5)}, {Key: "quantizer.bits", Value: int64(3)}, {Key: "quantizer.plugin", Value: "quest"}, {Key: "seed", Value: int64(6)}}
	var overrides []string
	for _, s := range settings {
		overrides = append(overrides, s.Key+"="+s.Text())
	}
	want, err := Parse("doc.toml", []byte(small), overrides)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		got, err := Resolve(doc, settings)
		if err != nil {
			t.Fatal(err)
		}
		if diff, err := Diff(want, got); err != nil || len(diff) > 0 {
			t.Errorf("%v, %v", diff, err)
		}
	}
	plain, err := Resolve(doc, nil)
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
		_, err := Resolve(doc, []plaintoml.Setting{{Key: key, Value: int64(1), File: "other.toml", Line: 9}})
		if err == nil || !strings.Contains(err.Error(), msg) {
			t.Errorf("%q: %v, want %s", key, err, msg)
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
		"quantizer.weights={plugin='quest', bits=3}", "optimizer.beta1=0.9", "quantizer={plugin='quest',bits=4}", "data.train='other'",
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
