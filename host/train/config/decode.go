package config

import (
	"fmt"
	"slices"
	"strings"

	"github.com/cage-qat/cage/host/model/architecture"
	"github.com/cage-qat/cage/internal/plaintoml"
	"github.com/cage-qat/cage/internal/schema"
)

type decoder struct {
	*plaintoml.Reader
	cfg    *Config
	schema []table // tied to cfg

	initial *Initial // that model.init names, if it was read
	closed  bool     // model.init is not read
	given   *Initial // what it names; nil: it is read
}

// newDecoder returns a decoder of a document, which it may change.
func newDecoder(doc *plaintoml.Document) *decoder {
	d := &decoder{Reader: plaintoml.NewReader(doc), cfg: &Config{places: doc.Places}}
	d.schema = d.cfg.tables()
	d.expandShort()
	return d
}

func (d *decoder) raw(key string) any { return d.Lookup(strings.Split(key, ".")...) }

// expandShort makes a table of every string that stands for one: rest = "sgd" is
// rest = { plugin = "sgd" }, to which an override can add.
func (d *decoder) expandShort() {
	for _, t := range d.schema {
		if !t.short {
			continue
		}
		around, _ := d.raw(plaintoml.ParentKey(t.name)).(map[string]any)
		key := strings.TrimPrefix(t.name, plaintoml.ParentKey(t.name)+".")
		if name, ok := around[key].(string); ok && name != "" && name != noPlugin {
			around[key] = map[string]any{"plugin": name}
		}
	}
}

// decode checks and resolves everything. The Config is of use only when
// d.Errs is empty.
func (d *decoder) decode() *Config {
	for _, t := range d.schema {
		if t.plugin != nil || t.list {
			continue
		}
		if values, ok := d.table(t); ok {
			d.settings(t, values)
		}
	}
	d.mixture()
	d.plugins()
	d.cfg.untrained = d.Given("train.steps") && d.Good("train.steps") && d.cfg.Train.Steps == 0
	suggested := d.suggestions()
	for _, t := range d.schema {
		if t.plugin == nil && !t.list {
			d.defaults(t, suggested)
		}
	}
	d.relations()
	return d.cfg
}

// suggestions are the values of absent keys, by full key, of the preset that is named, or of the model that this one
// starts from.
func (d *decoder) suggestions() map[string]any {
	d.readInitial()
	// The kind of the model decides on other defaults.
	if d.Good("model", "model.kind") && !d.Given("model.kind") {
		d.cfg.Model.Kind = architecture.KindLlama
		if d.initial != nil {
			d.cfg.Model.Kind = d.initial.Settings.Kind
		}
	}
	if d.initial != nil {
		return d.initial.values(d.cfg.NewTokens)
	}
	preset, problems := d.cfg.Model.FindPreset()
	d.problems(problems)
	return preset.Values()
}

func (d *decoder) mixture() {
	t := mixtureTable(&Source{})
	raw := d.raw(t.name)
	if raw == nil {
		return
	}
	list, ok := schema.TablesOf(raw)
	if !ok {
		d.Report(t.name, "found "+schema.Describe(raw), "want an array of tables, each with path and weight")
		return
	}
	d.cfg.Data.Mixture = make([]Source, len(list))
	for i, values := range list {
		element := mixtureTable(&d.cfg.Data.Mixture[i])
		d.Read(plaintoml.Indexed(t.name, i), values, element.keys...)
	}
}

func (d *decoder) table(t table) (map[string]any, bool) {
	if t.name == "" {
		return d.Values(), true
	}
	raw := d.raw(t.name)
	if raw == nil {
		return nil, false
	}
	values, ok := raw.(map[string]any)
	if !ok {
		hint := "want a table [" + t.name + "]"
		if t.short {
			hint = "want the name of a plugin, or a table [" + t.name + "]"
		}
		d.Report(t.name, "found "+schema.Describe(raw), hint)
	}
	return values, ok
}

func (d *decoder) settings(t table, values map[string]any) {
	d.Each(t.name, values, t.keys, func(name string, raw any) {
		if !slices.Contains(t.children(), name) {
			d.reportUnknown(t, name, raw)
		}
	})
}

// reportUnknown reports a key that the schema does not have, with the key that was
// probably meant.
func (d *decoder) reportUnknown(t table, key string, raw any) {
	path := t.path(key)
	what, meant := "unknown key", meantKey(t, key)
	if schema.IsTable(raw) {
		what, meant = "unknown table", ""
		if near := schema.Nearest(key, t.children()); near != "" {
			meant = t.path(near)
		}
	}
	if t.name != "" && slices.Contains(table{}.children(), key) {
		d.Excuse(key)
		d.Report(path, fmt.Sprintf("%s belongs to [%s] here, which does not have it", key, t.name),
			"write it above all tables, or as a table ["+key+"]")
		return
	}
	if meant == "" {
		d.Report(path, what, "known here: "+strings.Join(d.knownKeys(t), ", "))
		return
	}
	d.Excuse(meant) // so that it is not reported as missing, too
	d.Report(path, what, "did you mean "+meant+"?")
}

// meantKey guesses the full key meant by an unknown one in a table: the same name in another
// table, else a similar name here.
func meantKey(t table, key string) string {
	if full := uniqueKey(key); full != "" {
		return full
	}
	if near := schema.Nearest(key, t.names()); near != "" {
		return t.path(near)
	}
	return ""
}

// uniqueKey returns the full key of the only key of that name in all tables, or "".
func uniqueKey(key string) string {
	full, found := "", 0
	for _, t := range new(Config).tables() {
		if k := t.key(key); k != nil && t.plugin == nil && !k.Common {
			full, found = t.path(key), found+1
		}
	}
	if found != 1 {
		return ""
	}
	return full
}

// defaults fills in what is not given, and reports what is missing.
func (d *decoder) defaults(t table, suggested map[string]any) {
	for _, k := range t.keys {
		path := t.path(k.Name)
		if d.Given(path) || !t.applies(k, d.cfg) {
			continue
		}
		switch value, ok := suggested[path]; {
		case ok:
			k.Set(value)
		case k.Default != nil:
			k.Set(k.Default)
		case k.Derive != nil:
			k.Set(k.Derive())
		case k.Optional != "":
			// nil stands for it
		default:
			d.reportMissing(t, k)
		}
	}
}

func (d *decoder) reportMissing(t table, k schema.Key) {
	if !d.Good(t.path(k.Name), t.name) {
		return
	}
	if inPresets(t.path(k.Name)) {
		if !d.Good("model", "model.preset") {
			return
		}
		switch {
		case d.initial != nil: // which has no preset
		case slices.Contains(fixedKeys, k.Name):
			k.Doc += " (or name a preset in model.preset, or weights in model.init)"
		default:
			k.Doc += " (or name a preset in model.preset)"
		}
	}
	d.Missing(t.path(k.Name), k)
}

func inPresets(path string) bool {
	_, ok := architecture.Presets()[0].Values()[path]
	return ok
}
