package config

import (
	"strings"
	"testing"
)

// The table itself must hold together: its defaults are in range, and no two
// keys share a name or a place in the Config.
func TestSchema(t *testing.T) {
	cfg := &Config{}
	elements := map[string]any{overridesTable.name: &Override{}, groupsTable.name: &Group{}, optimizerTable.name: &cfg.Optimizer, restTable.name: &cfg.Optimizer}
	keys, places := map[string]bool{}, map[any]string{}
	for _, table := range schema() {
		for _, f := range table.fields {
			key := joinKey(table.name, f.key)
			if keys[key] {
				t.Errorf("%s stands twice", key)
			}
			keys[key] = true
			if f.doc == "" {
				t.Errorf("%s has no meaning", key)
			}
			if f.def != nil {
				if _, ok := f.accept(f.def); !ok {
					t.Errorf("%s: the default %v is not %s", key, f.def, f.wants())
				}
			}
			var place any
			switch {
			case f.in != nil:
				place = f.in(elements[table.name])
			case table.plugin:
				continue
			default:
				place = f.at(cfg)
			}
			if other := places[place]; other != "" {
				t.Errorf("%s and %s are one place", key, other)
			}
			places[place] = key
			for _, p := range Presets() {
				if f.preset == nil {
					continue
				}
				if _, ok := f.accept(f.preset(p)); !ok {
					t.Errorf("%s: preset %s gives %v, which is not %s", key, p.Name, f.preset(p), f.wants())
				}
			}
		}
	}
}

func TestReference(t *testing.T) {
	text := Reference()
	for _, table := range schema() {
		if table.name != "" && !strings.Contains(text, "\n## "+table.title()+"\n") {
			t.Errorf("no section for [%s]", table.name)
		}
		for _, f := range table.fields {
			if !strings.Contains(text, "| `"+f.key+"` | "+f.wants()+" | ") {
				t.Errorf("no row for %s", joinKey(table.name, f.key))
			}
		}
	}
	for _, want := range []string{
		"| `silence` | a number of at least 0 and below 1 | `0.9` |",
		"| `steps` | an integer from 1 to 1000000000 | required; the preset's, when one is named | optimizer steps |",
		"| llama | 30M | 6 | 5 | 640 | 1792 | 30482560 | 512 | 32000 | 64 | 8 | 11444 | 1144 | 0.0012 |",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	// Every row of a table has as many cells as its heading.
	cells := 0
	for _, line := range strings.Split(text, "\n") {
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
