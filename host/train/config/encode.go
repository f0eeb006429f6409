package config

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/BurntSushi/toml"

	"github.com/cage-qat/cage/internal/plaintoml"
)

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

// Heading begins what [Config.Encode] writes, and tells it from what somebody else has written.
const Heading = "# A resolved training run: every default is filled in.\n"

// Encode writes the resolved configuration as TOML, in a fixed order. [Load] reads it
// back to an equal one (see [Diff]), so a file written beside the results can be used to
// repeat the run. Encode fails only for values that Load would never return.
func (c *Config) Encode() ([]byte, error) {
	settings, err := c.settings(c.Quantizer.Weights.same(c.Quantizer.Activations))
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	b.WriteString(Heading)
	table := ""
	for _, s := range settings {
		if s.table != table {
			table = s.table
			heading := "[" + table + "]"
			if strings.HasSuffix(table, "]") { // the next one of an array
				heading = "[[" + plaintoml.ParentKey(table) + "]]"
			}
			fmt.Fprintf(&b, "\n%s\n", heading)
		}
		fmt.Fprintf(&b, "%s = %s\n", s.key, s.value)
	}
	return b.Bytes(), nil
}

// Difference is a key whose values in two configurations differ. A and B are the values
// in TOML, "" where a configuration does not have the key.
type Difference struct{ Key, A, B string }

// Diff lists the keys whose values differ between two configurations, those of a first.
// Only values are compared: not their lines, nor whether both roles of the quantizer were
// configured in one table.
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

// Incidental lists the keys that do not affect what a run computes and records.
func Incidental() []string {
	return []string{"train.out", "train.checkpoint_every", "train.checkpoint_minutes", "train.keep", "train.recompute", "train.tensorboard", "device.threads", "device.peak_tflops",
		"device.allocator", "device.preallocate", "device.memory_fraction", "device.cache", "device.timeout_minutes"}
}

// Fingerprint returns a hash of everything that decides what a run computes and records.
// It is the same for configurations that differ only in [Incidental] keys, such as the
// run directory, checkpoints, recomputation and threads. Keys with their default values
// are not included, so that a new key in the schema changes no fingerprint.
func (c *Config) Fingerprint() (string, error) {
	settings, err := c.settings(false)
	if err != nil {
		return "", err
	}
	h := sha256.New()
	for _, s := range settings {
		// Its default depends on train.average, so that it never counts as one. Runs without an average
		// keep the fingerprints that they had before there was the key.
		if s.path() == "train.average_from" && c.Train.Averaging() == nil {
			continue
		}
		if !s.def && !slices.Contains(Incidental(), s.path()) {
			fmt.Fprintf(h, "%s = %s\n", s.path(), s.value)
		}
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// settings lists the configuration in the order of the schema. shared writes
// the quantizer of both roles as one.
func (c *Config) settings(shared bool) ([]setting, error) {
	w := settingsWriter{}
	for _, t := range c.tables() {
		if t.name == mixtureTable(&Source{}).name {
			for i := range c.Data.Mixture {
				source := mixtureTable(&c.Data.Mixture[i])
				source.name = plaintoml.Indexed(t.name, i)
				w.table(source, c)
			}
			continue
		}
		if t.plugin == nil {
			w.table(t, c)
			continue
		}
		for _, t := range c.pluginTablesOf(t.name, shared) {
			w.table(t, c)
		}
	}
	return w.settings, w.err
}

// pluginTablesOf is the table of that name with what the configuration has there: none,
// or in an array several.
func (c *Config) pluginTablesOf(name string, shared bool) (list []table) {
	q, o := &c.Quantizer, &c.Optimizer
	orNone := func(p *Plugin) *Plugin {
		if p == nil {
			return &Plugin{Name: noPlugin}
		}
		return p
	}
	switch {
	case name == "quantizer" && shared && q.Weights != nil:
		list = []table{quantizerTable(q.Weights)}
	case name == "quantizer.weights" && !shared:
		list = []table{roleTable(RoleWeights, orNone(q.Weights))}
	case name == "quantizer.activations" && !shared:
		list = []table{roleTable(RoleActivations, orNone(q.Activations))}
	case slices.Contains(ownRoles, strings.TrimPrefix(name, "quantizer.")):
		role := strings.TrimPrefix(name, "quantizer.")
		if p := *q.role(role); p != nil {
			list = []table{roleTable(role, p)}
		}
	case name == "quantizer.overrides":
		for i := range q.Overrides {
			t := overrideTable(&q.Overrides[i], orNone(q.Overrides[i].Plugin))
			t.name = plaintoml.Indexed(t.name, i)
			list = append(list, t)
		}
	case name == "optimizer":
		list = []table{o.table(&o.Plugin)}
	case name == "optimizer.rest" && o.Rest != nil:
		list = []table{o.restTable(o.Rest)}
	case name == "optimizer.groups":
		for i := range o.Groups {
			g := &o.Groups[i]
			t := groupTable(g, &Plugin{})
			if g.Plugin != nil {
				t = groupTable(g, g.Plugin)
			}
			t.name = plaintoml.Indexed(t.name, i)
			list = append(list, t)
		}
	}
	return list
}

// settingsWriter keeps the first error, so that its callers need not.
type settingsWriter struct {
	settings []setting
	err      error
}

func (w *settingsWriter) add(table, key string, value any, def bool) {
	quoted := toml.Key{key}.String()
	line, err := toml.Marshal(map[string]any{key: value})
	if err != nil && w.err == nil {
		w.err = fmt.Errorf("encoding %s: %w", plaintoml.JoinKey(table, key), err)
	}
	text := strings.TrimPrefix(strings.TrimSpace(string(line)), quoted+" = ")
	w.settings = append(w.settings, setting{table: table, key: quoted, value: text, def: def})
}

func (w *settingsWriter) table(t table, c *Config) {
	_, selected := t.selector(c)
	for _, k := range t.keys {
		v := k.Value()
		if t.plugin == nil {
			if v != nil && t.applies(k, c) && k.Belongs(selected) {
				w.add(t.name, k.Name, v, reflect.DeepEqual(v, k.DefaultValue()))
			}
			continue
		}
		switch unnamed := t.plugin.Name == ""; {
		case v == nil || k.Name == "plugin" && unnamed:
		case k.Name == "plugin": // counts even if it is the default, as what a plugin does is no rule of ours
			w.add(t.name, k.Name, v, false)
		case k.Name != "sha256":
			w.add(t.name, k.Name, v, reflect.DeepEqual(v, k.DefaultValue()))
		case !unnamed && t.plugin.Name != noPlugin:
			w.add(t.name, k.Name, v, v == "")
			for _, name := range slices.Sorted(maps.Keys(t.plugin.Params)) {
				w.add(t.name, name, t.plugin.Params[name], false)
			}
		}
	}
}
