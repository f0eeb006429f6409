package config

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Kinds of models.
const (
	KindLlama     = "llama"
	KindOLMo2     = "olmo2"
	KindQuadratic = "quadratic"
	KindToy       = "toy"
)

// Groups of kinds that share keys.
var (
	modelKinds = []string{KindLlama, KindOLMo2, KindQuadratic, KindToy}
	languages  = []string{KindLlama, KindOLMo2}
	quadratics = []string{KindQuadratic}
	problems   = []string{KindQuadratic, KindToy}
)

// Language reports whether the model learns from text, and so needs data. The others
// are problems that are made of numbers.
func (m Model) Language() bool { return slices.Contains(languages, m.Kind) }

// kinds are those of the models that have the key; nil: all.
func (t table) kinds(f field) []string {
	if f.models != nil {
		return f.models
	}
	return t.models
}

// applies reports whether a key is one of the configuration's model kind.
func (t table) applies(f field, c *Config) bool {
	kinds := t.kinds(f)
	return kinds == nil || slices.Contains(kinds, c.Model.Kind)
}

// keys lists what may stand in a table, given the kind of model that the file names.
func (d *decoder) keys(t table) []string {
	guess := &Config{Model: Model{Kind: KindLlama}}
	if kind, ok := dig(d.values, []string{modelTable.name, "kind"}).(string); ok {
		guess.Model.Kind = kind
	}
	return slices.DeleteFunc(t.keys(), func(key string) bool {
		f := t.field(key)
		return f != nil && slices.Contains(modelKinds, guess.Model.Kind) && !t.applies(*f, guess)
	})
}

// kind checks that what is given is for the named kind of model.
func (d *decoder) kind() {
	if !d.good("model", "model.kind") {
		return
	}
	for _, t := range schema() {
		if t.models != nil && !slices.Contains(t.models, d.cfg.Model.Kind) {
			if _, given := d.values[t.name]; given {
				d.foreign(d.placed(t.name), "a table", t.models)
			}
			continue
		}
		for _, f := range t.fields {
			if key := joinKey(t.name, f.key); f.at != nil && d.given[key] && !t.applies(f, d.cfg) {
				d.foreign(key, "a key", f.models)
			}
		}
	}
}

// placed is a table's name, or where no line of the file has it, the first key in it
// that an override has set.
func (d *decoder) placed(table string) string {
	if _, ok := d.origin.keys[table]; ok {
		return table
	}
	for _, key := range slices.Sorted(maps.Keys(d.origin.keys)) {
		if strings.HasPrefix(key, table+".") {
			return key
		}
	}
	return table
}

// foreign reports a key or table of other kinds of models, in place of everything
// else that is wrong with it.
func (d *decoder) foreign(key, what string, kinds []string) {
	d.drop(key)
	owners := strings.ReplaceAll(QuotedList(kinds), ", ", " or ")
	d.report(key, fmt.Sprintf("%s of model.kind = %s, found with model.kind = %q", what, owners, d.cfg.Model.Kind),
		"leave it out, or set model.kind = "+owners)
}

// drop forgets the problems of a key and of what is below it.
func (d *decoder) drop(key string) {
	d.errs = slices.DeleteFunc(d.errs, func(e *Error) bool { return e.Key == key || strings.HasPrefix(e.Key, key+".") })
}

// points checks the lists of numbers of a problem against its shape, and fills in
// what training needs but a problem does not have.
func (d *decoder) points() {
	m := &d.cfg.Model
	if m.Kind == "" || m.Language() {
		return
	}
	d.cfg.Train.Batch, m.Context = 1, 1
	if m.Kind == KindToy {
		m.Dimension, m.Rows = 1, 1
	}
	if !d.good("model.dimension", "model.rows") {
		return
	}
	for _, l := range []struct {
		key        string
		have, want int
		words      string
	}{
		{"spectrum", len(m.Spectrum), m.Dimension, "as many as model.dimension"},
		{"optimum", len(m.Optimum), m.Rows * m.Dimension, "model.rows × model.dimension"},
		{"start", len(m.Start), m.Rows * m.Dimension, "model.rows × model.dimension"},
	} {
		if key := joinKey(modelTable.name, l.key); l.have > 0 && l.have != l.want && d.good(key) {
			d.report(key, fmt.Sprintf("found %d numbers", l.have), fmt.Sprintf("want %d: %s", l.want, l.words))
		}
	}
}
