package config

import (
	"strings"
	"testing"

	"github.com/cage-qat/cage/host/model/architecture"
)

// The table itself must hold together: its defaults are in range, and no two
// keys share a name or a place in the Config.
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

// TestReference: every row of a table has as many cells as its heading.
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
