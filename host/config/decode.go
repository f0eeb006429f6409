package config

import (
	"slices"
	"strings"
)

// decoder turns the tree of a document into a Config, collecting problems.
type decoder struct {
	values map[string]any
	origin origin
	cfg    *Config
	errs   Errors

	given map[string]bool // keys that stand in the file or in an override
	bad   map[string]bool // keys with a problem, which must not cause a second one
}

func newDecoder(doc *Document) *decoder {
	d := &decoder{values: doc.values, cfg: &Config{},
		origin: origin{file: doc.file, line: doc.line, keys: map[string]place{}},
		given:  map[string]bool{}, bad: map[string]bool{}}
	if d.values == nil {
		d.values = map[string]any{}
	}
	for key, line := range doc.lines {
		d.origin.keys[key] = place{line: line}
	}
	d.expandShort()
	return d
}

// expandShort makes a table of every string that stands for one: rest = "sgd" is
// rest = { plugin = "sgd" }, to which an override can add.
func (d *decoder) expandShort() {
	for _, t := range schema() {
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
	for _, t := range schema() {
		if t.plugin {
			continue
		}
		if values, ok := d.table(t); ok {
			d.settings(t, values)
		}
	}
	d.plugins()
	d.kindDefault()
	d.presetName()
	preset, _ := LookupPreset(d.cfg.Model.Kind, d.cfg.Model.Preset)
	for _, t := range schema() {
		if !t.plugin {
			d.defaults(t, preset)
		}
	}
	d.relations(preset)
	d.cfg.origin = d.origin
	return d.cfg
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
		d.report(t.name, "found "+Describe(raw), hint)
	}
	return values, ok
}

// settings reads the fields of a table that is not a plugin's.
func (d *decoder) settings(t table, values map[string]any) {
	for key, raw := range values {
		path := joinKey(t.name, key)
		if f := t.field(key); f != nil {
			d.field(*f, path, raw, func(v any) { assign(f.at(d.cfg), v) })
		} else if !slices.Contains(t.children(), key) {
			d.unknown(t, key, raw)
		}
	}
}

// field checks the value of a key, and hands it to set when it is right.
func (d *decoder) field(f field, path string, raw any, set func(any)) {
	d.given[path] = true
	v, ok := f.accept(raw)
	if ok {
		set(v)
		return
	}
	hint, found := "want "+f.wants(), Describe(raw)
	if bad := f.firstBad(raw); bad != nil {
		raw, found = bad, found+" with "+Describe(bad)
	}
	if s, isText := raw.(string); isText && len(f.is.choices) > 2 {
		if near := Nearest(s, f.is.choices); near != "" {
			hint += "; did you mean " + QuotedList([]string{near}) + "?"
		}
	}
	d.report(path, "found "+found, hint)
}

// firstBad returns the first element of an array that makes it wrong for a field
// that takes an array, nil for none.
func (f field) firstBad(raw any) any {
	list, isList := raw.([]any)
	if f.kind != texts && f.kind != numbers || !isList {
		return nil
	}
	for _, e := range list {
		_, nested := e.([]any)
		_, isText := e.(string)
		if _, ok := f.accept(e); !ok || nested || isText != (f.kind == texts) {
			return e
		}
	}
	return nil
}

// unknown reports a key that the schema does not have, with the key that was
// probably meant.
func (d *decoder) unknown(t table, key string, raw any) {
	path := joinKey(t.name, key)
	what, meant := "unknown key", meantKey(t, key)
	if isTable(raw) || isTables(raw) {
		what, meant = "unknown table", ""
		if near := Nearest(key, t.children()); near != "" {
			meant = joinKey(t.name, near)
		}
	}
	if meant == "" {
		d.report(path, what, "known here: "+strings.Join(d.keys(t), ", "))
		return
	}
	d.bad[meant] = true // it is not missing, it is misspelt
	d.report(path, what, "did you mean "+meant+"?")
}

// meantKey guesses the full key meant by an unknown one in a table: the same
// name in another table, else a similar name here, else one elsewhere.
func meantKey(t table, key string) string {
	if home := onlyHome(key); home != "" {
		return home
	}
	if near := Nearest(key, t.keys()); near != "" {
		return joinKey(t.name, near)
	}
	var everywhere []string
	for _, other := range schema() {
		if !other.plugin {
			for _, f := range other.fields {
				everywhere = append(everywhere, f.key)
			}
		}
	}
	return onlyHome(Nearest(key, everywhere))
}

// onlyHome returns the full key of the only field with that name, or "".
func onlyHome(key string) string {
	full, found := "", 0
	for _, t := range schema() {
		if f := t.field(key); f != nil && !t.plugin && !f.common {
			full, found = joinKey(t.name, key), found+1
		}
	}
	if found != 1 {
		return ""
	}
	return full
}

// kindDefault fills in the kind of the model, which decides on other defaults.
func (d *decoder) kindDefault() {
	if d.good("model", "model.kind") && !d.given["model.kind"] {
		d.cfg.Model.Kind = KindLlama
	}
}

// defaults fills in what is not given, and reports what is missing.
func (d *decoder) defaults(t table, preset Preset) {
	for _, f := range t.fields {
		path := joinKey(t.name, f.key)
		if d.given[path] || !t.applies(f, d.cfg) {
			continue
		}
		switch {
		case f.at != nil && f.optional != "":
			// nil stands for it
		case f.preset != nil && preset.Name != "":
			assign(f.at(d.cfg), f.preset(preset))
		case f.def != nil:
			assign(f.at(d.cfg), f.def)
		case f.derive != nil:
			assign(f.at(d.cfg), f.derive(d))
		default:
			d.missing(t, f, path)
		}
	}
}

func (d *decoder) missing(t table, f field, path string) {
	if d.bad[path] || d.bad[t.name] {
		return
	}
	hint := "want " + f.wants() + ": " + f.doc
	if f.preset != nil {
		if d.bad["model"] || d.bad["model.preset"] {
			return
		}
		hint += " (or name a preset in model.preset)"
	}
	d.report(path, "missing", hint)
}

// report records a problem at a key.
func (d *decoder) report(key, msg, hint string) {
	d.bad[key] = true
	e := d.origin.at(key)
	e.Msg, e.Hint = msg, hint
	d.errs = append(d.errs, e)
}
