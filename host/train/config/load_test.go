package config

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cage-qat/cage/internal/plaintoml"
	"github.com/cage-qat/cage/internal/testing/badfiles"
)

func TestLoad(t *testing.T) {
	c, err := Load(write(t, t.TempDir(), "tiny.v2.toml", small), []string{"train.steps=50"})
	if err != nil {
		t.Fatal(err)
	}
	if want := filepath.Join("runs", "tiny.v2"); c.Train.Steps != 50 || c.Train.Out != want {
		t.Errorf("steps %d, out %q, want 50 and %q", c.Train.Steps, c.Train.Out, want)
	}
}

func TestLoadRefusesFile(t *testing.T) {
	dir := t.TempDir()
	for _, c := range []struct{ path, want string }{
		{filepath.Join(dir, "absent.toml"), ": no such file"},
		{dir, ": is a directory"},
		{write(t, dir, "file", "") + "/run.toml", ": cannot read: not a directory"},
		{write(t, dir, "huge.toml", strings.Repeat("# 456789\n", 1<<17)), ": larger than 1048576 bytes"},
		{write(t, dir, "binary.toml", "a = 1\n\xff\xfe"), ":2: not UTF-8 text"},
		{write(t, dir, "nul.toml", "a = \"\x00\""), ":1: not valid TOML"},
	} {
		_, err := Load(c.path, nil)
		if err == nil || !strings.HasPrefix(err.Error(), c.path+c.want) {
			t.Errorf("got  %v\nwant %s%s", err, c.path, c.want)
		}
		var e *plaintoml.Error
		if !errors.As(err, &e) || e.File != c.path {
			t.Errorf("%s: no *plaintoml.Error with the file in %T", c.path, err)
		}
	}
	if _, err := Load(filepath.Join(dir, "absent.toml"), nil); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%v is not fs.ErrNotExist", err)
	}
}

func TestLoadUnreadable(t *testing.T) {
	path := filepath.Join(t.TempDir(), "secret.toml")
	if err := os.WriteFile(path, []byte(small), 0o000); err != nil {
		t.Fatal(err)
	}
	if f, err := os.Open(path); err == nil {
		f.Close()
		t.Skip("this user may read every file")
	}
	_, err := Load(path, nil)
	if err == nil || !strings.HasPrefix(err.Error(), path+": cannot read: permission denied") {
		t.Errorf("got %v", err)
	}
}

func TestDefaultOut(t *testing.T) {
	for path, name := range map[string]string{
		"a/demo.toml": "demo", "demo": "demo", ".toml": "run", "": "run", "/": "run", "x.y.toml": "x.y",
	} {
		cfg, err := Parse(path, []byte(small), nil)
		if want := filepath.Join("runs", name); err != nil || cfg.Train.Out != want {
			t.Errorf("%q: %q, %v, want %q", path, cfg.Train.Out, err, want)
		}
	}
}

// TestHostileNesting checks that text that would slow down a naive parser or exhaust its stack is
// refused.
func TestHostileNesting(t *testing.T) {
	for name, text := range map[string]string{
		"dotted key":    strings.Repeat("a.", 1<<18) + "a = 1",
		"table":         "[" + strings.Repeat("a.", 1<<18) + "a]",
		"arrays":        "a = " + strings.Repeat("[", 1<<19),
		"closed arrays": "a = " + strings.Repeat("[", 5000) + strings.Repeat("]", 5000),
		"inline tables": "a = " + strings.Repeat("{a = ", 1<<17),
		"mixed":         "a = " + strings.Repeat("[{a = ", 100) + "1" + strings.Repeat("}]", 100),
	} {
		_, err := Parse("x.toml", []byte(text), nil)
		if err == nil || !strings.Contains(err.Error(), "nested") {
			t.Errorf("%s: %.200v", name, err)
		}
		if _, err = Parse("x.toml", []byte(small), []string{text}); err == nil {
			t.Errorf("%s: accepted as an override", name)
		}
	}
}

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

// TestResolveSettings checks that the settings in a table of a document can be resolved.
func TestResolveSettings(t *testing.T) {
	doc := document(t, around)
	for i := range 2 {
		table := plaintoml.Indexed("outer.many", i) + ".set"
		many := doc.Lookup("outer").(map[string]any)["many"].([]map[string]any)
		c, err := Resolve(document(t, small),
			doc.Settings(table, many[i]["set"].(map[string]any)), nil)
		if err != nil {
			t.Fatal(err)
		}
		if i == 0 && (c.Train.Steps != 7 || c.Method.CAGE.Form != "off" ||
			c.Quantizer.Weights.Name != "absmax") || i == 1 && len(c.Quantizer.Overrides) != 1 {
			t.Errorf("%d: %+v", i, c)
		}
	}
}

// TestDocumentTable checks that errors in a table of a document name the lines of the file.
func TestDocumentTable(t *testing.T) {
	_, err := Resolve(document(t, around).Table("inner"), nil, nil)
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

// TestResolve checks that Resolve acts like overrides, and leaves the document unchanged.
func TestResolve(t *testing.T) {
	doc := document(t, small)
	settings := []plaintoml.Setting{{Key: "seed", Value: int64(5)},
		{Key: "quantizer.bits", Value: int64(3)}, {Key: "quantizer.plugin", Value: "quest"},
		{Key: "seed", Value: int64(6)}}
	var overrides []string
	for _, s := range settings {
		overrides = append(overrides, s.Key+"="+s.Text())
	}
	want, err := Parse("doc.toml", []byte(small), overrides)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		got, err := Resolve(doc, settings, nil)
		if err != nil {
			t.Fatal(err)
		}
		if diff := Diff(want, got); len(diff) > 0 {
			t.Errorf("%v", diff)
		}
	}
	plain, err := Resolve(doc, nil, nil)
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
		_, err := Resolve(doc,
			[]plaintoml.Setting{{Key: key, Value: int64(1), File: "other.toml", Line: 9}}, nil)
		if err == nil || !strings.Contains(err.Error(), msg) {
			t.Errorf("%q: %v, want %s", key, err, msg)
		}
	}
}

// TestFingerprint checks that the fingerprint depends only on what a run computes and records.
func TestFingerprint(t *testing.T) {
	print := func(overrides ...string) string {
		t.Helper()
		p := parse(t, small, overrides...).Fingerprint()
		if len(p) != 64 {
			t.Fatalf("%q", p)
		}
		return p
	}
	// Results that earlier versions stored are found by this fingerprint.
	const want = "75edcd6286edb8f4714a791a61a05496c2fce7a3d1d95eebc301ab86d34134d7"
	if got := print(); got != want {
		t.Errorf("the fingerprint of a configuration has become %s, was %s: a new key is in all of them",
			got, want)
	}
	same := [][]string{{"train.out='x'"},
		{"train.keep=9", "train.checkpoint_every=3", "train.checkpoint_minutes=1.5",
			"train.recompute='blocks'", "device.threads=2"}, {"seed=0"}}
	for _, o := range same {
		if print(o...) != print() {
			t.Errorf("%v changes it", o)
		}
	}
	if print("device={kind='cuda', cache='x', allocator='bfc', preallocate='on', "+
		"memory_fraction=0.5}") != print("device={kind='cuda'}") {
		t.Error("how memory is taken and what is cached changes it")
	}
	seen := map[string]string{print(): "nothing"}
	for _, o := range []string{"seed=1", "train.eval_every=3", "train.log_every=3",
		"quantizer={plugin='quest'}", "quantizer={plugin='quest', bits=3}",
		"quantizer.weights={plugin='quest', bits=3}", "optimizer.beta1=0.9",
		"quantizer={plugin='quest',bits=4}", "data.train='other'",
		"device={kind='cuda'}", "device={kind='cuda', precision='bfloat16'}",
		"device={kind='cuda', tf32='on'}",
		"device={kind='cuda', attention='plain'}", "device={kind='cuda', kernels='graph'}",
		"device={kind='cuda', count=2}"} {
		p := print(o)
		if other, ok := seen[p]; ok {
			t.Errorf("%s and %s have the same", o, other)
		}
		seen[p] = o
	}
}

const leastBad = 25

// overridesOf returns the overrides of a case of testdata/bad: the lines of its member "set", in
// which \n stands for a line break.
func overridesOf(c badfiles.Case) []string {
	text := c.File("set")
	if text == nil {
		return nil
	}
	var overrides []string
	for _, line := range strings.Split(strings.TrimSuffix(string(text), "\n"), "\n") {
		overrides = append(overrides, strings.ReplaceAll(line, `\n`, "\n"))
	}
	return overrides
}

func TestBadInputs(t *testing.T) {
	badfiles.Test(t, leastBad, func(t *testing.T, c badfiles.Case) error {
		_, err := Parse("run.toml", c.File("run.toml"), overridesOf(c))
		var e *plaintoml.Error
		if err != nil && (!errors.As(err, &e) || e.Msg == "") {
			t.Errorf("no *plaintoml.Error in %T", err)
		}
		return err
	})
}
