package config

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/cage-qat/cage/host/model/architecture"
	"github.com/cage-qat/cage/internal/schema"
)

// decoder turns the tree of a document into a Config, collecting problems.
type decoder struct {
	values map[string]any
	origin origin
	cfg    *Config
	schema []table // tied to cfg
	errs   Errors

	initial *Initial // that model.init names, if it was read
	closed  bool     // model.init is not read

	// Tables that nobody knows, and the keys that are missing because these may be what was
	// meant for them.
	strangers, orphans []string

	given map[string]bool // keys that stand in the file or in an override
	bad   map[string]bool // keys with a problem, which must not cause a second one
}

func newDecoder(doc *Document) *decoder {
	d := &decoder{values: doc.values, cfg: &Config{},
		origin: origin{doc.file, doc.line, maps.Clone(doc.keys)},
		given:  map[string]bool{}, bad: map[string]bool{}}
	if d.values == nil {
		d.values = map[string]any{}
	}
	d.cfg.origin = d.origin
	d.schema = d.cfg.tables()
	d.expandShort()
	return d
}

// expandShort makes a table of every string that stands for one: rest = "sgd" is
// rest = { plugin = "sgd" }, to which an override can add.
func (d *decoder) expandShort() {
	for _, t := range d.schema {
		if !t.short {
			continue
		}
		path := strings.Split(t.name, ".")
		around, _ := dig(d.values, path[:len(path)-1]).(map[string]any)
		key := path[len(path)-1]
		if name, ok := around[key].(string); ok && name != "" && name != noPlugin {
			around[key] = map[string]any{"plugin": name}
		}
	}
}

// decode checks and resolves everything. The Config is of use only when
// d.errs is empty.
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
	d.cfg.untrained = d.given["train.steps"] && d.good("train.steps") && d.cfg.Train.Steps == 0
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
	if d.good("model", "model.kind") && !d.given["model.kind"] {
		d.cfg.Model.Kind = architecture.KindLlama
		if d.initial != nil {
			d.cfg.Model.Kind = d.initial.Settings.Kind
		} else {
			d.kindOfKeys()
		}
	}
	if d.initial != nil {
		return d.initial.values(d.cfg.NewTokens)
	}
	preset, problems := d.cfg.Model.FindPreset()
	d.problems(problems)
	return preset.Values()
}

// mixture reads [[data.mixture]].
func (d *decoder) mixture() {
	t := mixtureTable(&Source{})
	raw := dig(d.values, strings.Split(t.name, "."))
	if raw == nil {
		return
	}
	list, ok := TablesOf(raw)
	if !ok {
		d.report(t.name, "found "+schema.Describe(raw), "want an array of tables, each with path and weight")
		return
	}
	d.cfg.Data.Mixture = make([]Source, len(list))
	for i, values := range list {
		element := mixtureTable(&d.cfg.Data.Mixture[i])
		element.name = Indexed(t.name, i)
		d.settings(element, values)
		for _, k := range element.keys {
			if !d.given[element.path(k.Name)] {
				d.missing(element, k)
			}
		}
	}
}

// table returns the values of a table, nothing when it is absent.
func (d *decoder) table(t table) (map[string]any, bool) {
	if t.name == "" {
		return d.values, true
	}
	raw := dig(d.values, strings.Split(t.name, "."))
	if raw == nil {
		return nil, false
	}
	values, ok := raw.(map[string]any)
	if !ok {
		hint := "want a table [" + t.name + "]"
		if t.short {
			hint = "want the name of a plugin, or a table [" + t.name + "]"
		}
		d.report(t.name, "found "+schema.Describe(raw), hint)
	}
	return values, ok
}

// settings reads the keys of a table that is not a plugin's.
func (d *decoder) settings(t table, values map[string]any) {
	for name, raw := range values {
		if k := t.key(name); k != nil {
			d.read(*k, t.path(name), raw)
		} else if !slices.Contains(t.children(), name) {
			d.unknown(t, name, raw)
		}
	}
}

// read sets a key to a value of the file, if that is right.
func (d *decoder) read(k schema.Key, path string, raw any) {
	d.given[path] = true
	if found, hint := k.Read(raw); found != "" {
		d.report(path, found, hint)
	}
}

// unknown reports a key that the schema does not have, with the key that was
// probably meant.
func (d *decoder) unknown(t table, key string, raw any) {
	path := t.path(key)
	what, meant := "unknown key", meantKey(t, key)
	if IsTable(raw) {
		what, meant = "unknown table", d.meantTable(t, key, raw)
	}
	if t.name != "" && slices.Contains(table{}.children(), key) {
		d.bad[key] = true
		d.report(path, fmt.Sprintf("%s belongs to [%s] here, which does not have it", key, t.name), "write it above all tables, or as a table ["+key+"]")
		return
	}
	if meant == "" {
		if what == "unknown table" && t.name == "" {
			d.strangers = append(d.strangers, path)
		}
		d.report(path, what, "known here: "+strings.Join(d.known(t), ", "))
		return
	}
	d.bad[meant] = true // so that it is not reported as missing, too
	d.report(path, what, "did you mean "+meant+"?")
}

// meantKey guesses the full key meant by an unknown one in a table: the same
// name in another table, else a similar name here, else one elsewhere.
func meantKey(t table, key string) string {
	if full := uniqueKey(key); full != "" {
		return full
	}
	if near := schema.Nearest(key, t.names()); near != "" {
		return t.path(near)
	}
	var everywhere []string
	for _, other := range new(Config).tables() {
		if other.plugin == nil {
			for _, k := range other.keys {
				everywhere = append(everywhere, k.Name)
			}
		}
	}
	return uniqueKey(schema.Nearest(key, everywhere))
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
		if d.given[path] || !t.applies(k, d.cfg) {
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
			d.missing(t, k)
		}
	}
}

func (d *decoder) missing(t table, k schema.Key) {
	if d.bad[t.path(k.Name)] || d.bad[t.name] {
		return
	}
	if len(d.strangers) > 0 && t.name != "" && dig(d.values, strings.Split(t.name, ".")) == nil {
		d.orphans = append(d.orphans, t.path(k.Name))
		return
	}
	hint := "want " + k.Wants() + ": " + k.Doc
	if inPresets(t.path(k.Name)) {
		if d.bad["model"] || d.bad["model.preset"] {
			return
		}
		switch {
		case d.initial != nil: // which has no preset
		case slices.Contains(fixedKeys, k.Name):
			hint += " (or name a preset in model.preset, or weights in model.init)"
		default:
			hint += " (or name a preset in model.preset)"
		}
	}
	d.report(t.path(k.Name), "missing", hint)
}

// inPresets reports whether presets say something of a key.
func inPresets(path string) bool {
	_, ok := architecture.Presets()[0].Values()[path]
	return ok
}

// report records a problem at a key.
func (d *decoder) report(key, msg, hint string) {
	d.bad[key] = true
	e := d.origin.at(key)
	e.Msg, e.Hint = msg, hint
	d.errs = append(d.errs, e)
}
