package config

import (
	"errors"
	"strings"
	"testing"

	"github.com/cage-qat/cage/host/model/architecture"
	"github.com/cage-qat/cage/internal/plaintoml"
	"github.com/cage-qat/cage/internal/testing/badfiles"
)

// FuzzParse checks Parse with any file and override: it does not panic, every error is a
// *plaintoml.Error on one line that names the file with a line, or the override, and an accepted
// configuration survives Encode.
func FuzzParse(f *testing.F) {
	f.Add([]byte(small), "train.steps=5")
	f.Add([]byte("[model]\npreset = \"30M\"\n[data]\ntrain='a'\nvalidation='b'"),
		"quantizer={plugin='quest',bits=4}")
	f.Add([]byte(small+overrideSample), "quantizer.overrides[1].match=['a','b*']")
	f.Add([]byte(small+groupSample), "optimizer.groups[1]={roles='head',rate=2}")
	f.Add([]byte(small+"[quantizer]\noverrides=[{match='a',plugin='b',c=1},{match=['d'],plugin='none'}]"), "optimizer.rest.x=1")
	f.Add([]byte(small+"[quantizer.weights]\nplugin='a'\n[method]\nname='lotion'\ncoeff=3"),
		"method.name='off'")
	f.Add([]byte(problem), "model.start=[1, 2.5]")
	for _, c := range badfiles.Read(f, leastBad) {
		f.Add(c.File("run.toml"), strings.Join(overridesOf(c), ""))
	}
	f.Fuzz(func(t *testing.T, text []byte, override string) {
		var overrides []string
		if override != "" {
			overrides = []string{override}
		}
		c, err := Parse("run.toml", text, overrides)
		if err == nil {
			roundTrip(t, c)
			return
		}
		var all plaintoml.Errors
		if !errors.As(err, &all) {
			var one *plaintoml.Error
			if !errors.As(err, &one) {
				t.Fatalf("no *plaintoml.Error in %T: %v", err, err)
			}
			all = plaintoml.Errors{one}
		}
		for _, e := range all {
			fromFile := e.File == "run.toml" && e.Line >= 1 && e.Line <= 1+strings.Count(string(text), "\n")
			fromOverride := strings.HasPrefix(e.File, "--set ") && override != ""
			if !fromFile && !fromOverride || e.Msg == "" || strings.Contains(e.Error(), "\n") {
				t.Fatalf("%#v: %v", e, e)
			}
		}
	})
}

// TestSchema checks that all defaults and presets are in range, and that no two keys have the same
// name or the same destination in Config.
func TestSchema(t *testing.T) {
	keys, places := map[string]bool{}, map[any]string{}
	preset := architecture.Presets()[0].Values()
	for _, table := range new(Config).tables() {
		for _, k := range table.keys {
			path := table.path(k.Name)
			if keys[path] {
				t.Errorf("%s stands twice", path)
			}
			keys[path] = true
			if k.Doc == "" {
				t.Errorf("%s has no meaning", path)
			}
			if k.Default != nil {
				if _, ok := k.Accept(k.DefaultValue()); !ok {
					t.Errorf("%s: the default %v is not %s", path, k.Default, k.Wants())
				}
			}
			if other := places[k.To]; other != "" {
				t.Errorf("%s and %s are one place", path, other)
			}
			places[k.To] = path
			delete(preset, path)
			for _, p := range architecture.Presets() {
				if v, ok := p.Values()[path]; ok {
					k.Set(v)
					if _, ok := k.Accept(k.Value()); !ok {
						t.Errorf("%s: preset %s gives %v, which is not %s", path, p.Name, v, k.Wants())
					}
				}
			}
		}
	}
	if len(preset) > 0 {
		t.Errorf("presets have values of unknown keys: %v", preset)
	}
}

// TestReference checks that every row of a table has as many cells as its heading.
func TestReference(t *testing.T) {
	cells := 0
	for _, line := range strings.Split(Reference(), "\n") {
		switch n := strings.Count(line, "|"); {
		case n == 0:
			cells = 0
		case cells == 0:
			cells = n
		case n != cells:
			t.Errorf("%d separators, want %d: %s", n, cells, line)
		}
	}
}
