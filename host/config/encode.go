package config

import (
	"bytes"
	"fmt"
	"reflect"
	"strings"

	"github.com/BurntSushi/toml"
)

// setting is one key of a resolved configuration, as it is written.
type setting struct {
	table string // dotted name, with its index in an array; "" for the top level
	key   string // quoted where TOML needs it
	value string // in TOML
	def   bool   // it is the default, whatever the rest of the configuration is
}

func (s setting) path() string {
	if s.table == "" {
		return s.key
	}
	return s.table + "." + s.key
}

// Encode writes the resolved configuration as TOML that [Load] reads back to
// an equal one (see [Diff]), in a fixed order. Written beside the results, it
// repeats the run. It fails only for values that Load would never give.
func (c *Config) Encode() ([]byte, error) {
	settings, err := c.settings(c.Quantizer.Weights.same(c.Quantizer.Activations))
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	b.WriteString("# A resolved training run: every default is filled in.\n")
	table := ""
	for _, s := range settings {
		if s.table != table {
			table = s.table
			fmt.Fprintf(&b, "\n%s\n", heading(table))
		}
		fmt.Fprintf(&b, "%s = %s\n", s.key, s.value)
	}
	return b.Bytes(), nil
}

// heading starts a table, or the next one of an array of tables.
func heading(table string) string {
	if strings.HasSuffix(table, "]") {
		return "[[" + parentKey(table) + "]]"
	}
	return "[" + table + "]"
}

// Difference is a key in which two configurations differ, with the values in
// TOML; "" where one has no such key.
type Difference struct{ Key, A, B string }

// Diff lists the keys in which two configurations differ, those of a first.
// Nothing but the values counts: not their lines, nor whether both roles of
// the quantizer were configured in one table.
func Diff(a, b *Config) ([]Difference, error) {
	inA, err := a.settings(false)
	if err != nil {
		return nil, err
	}
	inB, err := b.settings(false)
	if err != nil {
		return nil, err
	}
	others := map[string]string{}
	for _, s := range inB {
		others[s.path()] = s.value
	}
	var diffs []Difference
	for _, s := range inA {
		key := s.path()
		if other := others[key]; other != s.value {
			diffs = append(diffs, Difference{key, s.value, other})
		}
		delete(others, key)
	}
	for _, s := range inB {
		key := s.path()
		if other, left := others[key]; left {
			diffs = append(diffs, Difference{key, "", other})
		}
	}
	return diffs, nil
}

// settings lists the configuration in the order of the schema. shared writes
// the quantizer of both roles as one.
func (c *Config) settings(shared bool) ([]setting, error) {
	w := settingsWriter{}
	for _, t := range schema() {
		switch {
		case t.name == quantizerTable.name && shared:
			if c.Quantizer.Weights != nil {
				w.plugin(t.name, c.Quantizer.Weights)
			}
		case t.name == weightsTable.name && !shared:
			w.plugin(t.name, c.Quantizer.Weights)
		case t.name == activationsTable.name && !shared:
			w.plugin(t.name, c.Quantizer.Activations)
		case t.name == overridesTable.name:
			for i, o := range c.Quantizer.Overrides {
				w.element(t, indexed(t.name, i), &o)
				w.plugin(indexed(t.name, i), o.Plugin)
			}
		case t.name == optimizerTable.name:
			w.plugin(t.name, &c.Optimizer.Plugin)
			w.element(t, t.name, &c.Optimizer)
		case t.name == restTable.name && c.Optimizer.Rest != nil:
			w.plugin(t.name, c.Optimizer.Rest)
			w.element(t, t.name, &c.Optimizer)
		case t.name == groupsTable.name:
			for i, g := range c.Optimizer.Groups {
				w.element(t, indexed(t.name, i), &g)
				if g.Plugin != nil {
					w.plugin(indexed(t.name, i), g.Plugin)
				}
			}
		case !t.plugin:
			for _, f := range t.fields {
				if v := deref(f.at(c)); v != nil && f.belongs(c.Method.Name) && t.applies(f, c) {
					w.field(t.name, f, v)
				}
			}
		}
	}
	return w.settings, w.err
}

// settingsWriter keeps the first error, so that its callers need not.
type settingsWriter struct {
	settings []setting
	err      error
}

func (w *settingsWriter) add(table, key string, value any) {
	quoted := toml.Key{key}.String()
	line, err := toml.Marshal(map[string]any{key: value})
	if err != nil && w.err == nil {
		w.err = fmt.Errorf("encoding %s: %w", joinKey(table, key), err)
	}
	text := strings.TrimPrefix(strings.TrimSpace(string(line)), quoted+" = ")
	w.settings = append(w.settings, setting{table: table, key: quoted, value: text})
}

// field writes a key of the schema.
func (w *settingsWriter) field(table string, f field, value any) {
	w.add(table, f.key, value)
	w.settings[len(w.settings)-1].def = f.def != nil && reflect.DeepEqual(f.def, value)
}

// element writes the keys of ours in a table of optimizers or in an element of a list
// of tables, which has a name of its own.
func (w *settingsWriter) element(t table, name string, element any) {
	for _, f := range t.fields {
		if f.in == nil {
			continue
		}
		if v := deref(f.in(element)); v != nil {
			w.field(name, f, v)
		}
	}
}

func (w *settingsWriter) plugin(table string, p *Plugin) {
	if p == nil {
		w.add(table, "plugin", noPlugin)
		return
	}
	w.add(table, "plugin", p.Name)
	w.add(table, "sha256", p.SHA256)
	w.settings[len(w.settings)-1].def = p.SHA256 == ""
	for _, q := range p.Params {
		w.add(table, q.Key, q.Value)
	}
}

// deref reads through a pointer that field.at or field.in returned; nil for an
// optional value that is absent.
func deref(pointer any) any {
	switch p := pointer.(type) {
	case *int:
		return int64(*p)
	case *int64:
		return *p
	case *float64:
		return *p
	case *string:
		return *p
	case *[]string:
		return *p
	case *[]float64:
		if *p == nil {
			return nil
		}
		return *p
	case **int:
		if *p == nil {
			return nil
		}
		return int64(**p)
	case **float64:
		if *p == nil {
			return nil
		}
		return **p
	default:
		panic(fmt.Sprintf("config: the schema points to a %T", pointer))
	}
}
