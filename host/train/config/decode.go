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

	initial *Initial // the model in model.init, if it was read
	closed  bool     // do not read model.init
	given   *Initial // used instead of reading model.init; nil: read it
}

func newDecoder(doc *plaintoml.Document) *decoder {
	d := &decoder{Reader: plaintoml.NewReader(doc), cfg: &Config{places: doc.Positions}}
	d.schema = d.cfg.tables()
	d.expandShort()
	return d
}

func (d *decoder) raw(key string) any { return d.Lookup(strings.Split(key, ".")...) }

// expandShort replaces rest = "sgd" in [optimizer] with rest = { plugin = "sgd" }, to which
// overrides can add keys.
func (d *decoder) expandShort() {
	optimizer, _ := d.raw("optimizer").(map[string]any)
	if name, ok := optimizer["rest"].(string); ok && name != "" && name != noPlugin {
		optimizer["rest"] = map[string]any{"plugin": name}
	}
}

// dropFormer removes keys of earlier versions, and reports those whose values had an effect. The
// run.toml that these versions wrote holds the keys also without an effect.
func (d *decoder) dropFormer() {
	drop := func(table string, values map[string]any, key string, value any) {
		if raw, ok := values[key]; ok && raw != value {
			d.Report(plaintoml.JoinKey(table, key), "found "+schema.Describe(raw)+
				", which only earlier versions had", "leave the key out")
		}
		delete(values, key)
	}
	device, _ := d.raw("device").(map[string]any)
	drop("device", device, "offload", "none")
	overrides, _ := schema.TablesOf(d.raw("quantizer.overrides"))
	for i, o := range overrides {
		table := plaintoml.Indexed("quantizer.overrides", i)
		drop(table, o, "from", int64(1))
		drop(table, o, "to", int64(0))
	}
}

// decode checks and resolves the document. The result is only valid if d.Errs is empty.
func (d *decoder) decode() *Config {
	d.dropFormer()
	for _, t := range d.schema {
		if t.plugin != nil || t.list {
			continue
		}
		if values, ok := d.table(t); ok {
			d.Each(t.name, values, t.keys, func(name string, raw any) {
				if !slices.Contains(t.children(), name) {
					d.reportUnknown(t, name, raw)
				}
			})
		}
	}
	d.cfg.Data.Mixture = readList(d, mixtureTable, func(_ *Source, t table, values map[string]any) {
		d.Read(t.name, values, t.keys...)
	})
	d.plugins()
	d.cfg.untrained = d.Given("train.steps") && d.Good("train.steps") && d.cfg.Train.Steps == 0
	d.readInitial()
	// The kind of the model is set first, because other defaults depend on it.
	if d.Good("model", "model.kind") && !d.Given("model.kind") {
		d.cfg.Model.Kind = architecture.KindLlama
		if d.initial != nil {
			d.cfg.Model.Kind = d.initial.Settings.Kind
		}
	}
	var suggested map[string]any // defaults from the initial model or the preset, by full key
	if d.initial != nil {
		suggested = d.initial.values(d.cfg.NewTokens)
	} else {
		preset, problems := d.cfg.Model.FindPreset()
		d.problems(problems)
		suggested = preset.Values()
	}
	for _, t := range d.schema {
		if t.plugin == nil && !t.list {
			d.defaults(t, suggested)
		}
	}
	d.requireTables()
	d.foreignKeys()
	if len(d.Errs) == 0 {
		d.relations()
	}
	return d.cfg
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
		if t.name == "optimizer.rest" {
			hint = "want the name of a plugin, or a table [" + t.name + "]"
		}
		d.Report(t.name, "found "+schema.Describe(raw), hint)
	}
	return values, ok
}

func (d *decoder) reportUnknown(t table, key string, raw any) {
	if t.name != "" && slices.Contains(table{}.children(), key) {
		d.Excuse(key)
		d.Report(t.path(key), fmt.Sprintf("%s is inside [%s] here, which has no such key", key, t.name),
			"write it above all tables, or as a table ["+key+"]")
		return
	}
	if schema.Nearest(key, t.names()) == "" {
		var tables []string // those that have the key
		for _, other := range d.schema {
			if other.key(key) != nil && other.plugin == nil && !other.list {
				tables = append(tables, other.title())
				d.Excuse(other.path(key)) // it is misplaced, not missing
			}
		}
		if len(tables) > 0 {
			d.Report(t.path(key), "unknown key", "keys of this name belong in "+
				strings.Join(tables, ", ")+", or in the table of a plugin, such as [quantizer]")
			return
		}
	}
	d.Unknown(t.name, key, raw, t.names())
}

// requireTables reports missing keys that are only required in some configurations: data.train, and
// teacher in the distillation table.
func (d *decoder) requireTables() {
	c := d.cfg
	if !c.Model.Language() || !d.Good("model", "model.kind") {
		return
	}
	data, distillation := table{name: "data", keys: c.Data.keys()}, c.Train.Distillation.table()
	if !c.untrained && !d.Given("data.train") && d.raw("data.mixture") == nil && d.Good("data") {
		d.reportMissing(data, *data.key("train"))
	}
	adapters := table{name: adaptersTable, keys: c.Adapters.Keys()}
	if d.raw(adaptersTable) != nil && !d.Given(adaptersTable+".rank") && d.Good(adaptersTable) {
		d.reportMissing(adapters, *adapters.key("rank"))
	}
	if d.raw(distillationTable) != nil && !d.Given(teacherKey) && d.Good("train", distillationTable) {
		d.reportMissing(distillation, *distillation.key("teacher"))
	}
}

// defaults sets absent keys to their defaults, and reports those that are required.
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
			// The variable stays nil.
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
		case d.initial != nil: // an initial model has no preset
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

func (d *decoder) plugins() {
	q, o := &d.cfg.Quantizer, &d.cfg.Optimizer
	both, _ := d.plugin(quantizerTable(&Plugin{}))
	q.Unused = both
	role := func(role string) *Plugin {
		if p, own := d.plugin(roleTable(role, &Plugin{})); own || both == nil {
			return p
		}
		q.Unused = nil
		return both.copy()
	}
	q.Weights, q.Activations = role(RoleWeights), role(RoleActivations)
	for _, role := range ownRoles {
		*q.role(role), _ = d.plugin(roleTable(role, &Plugin{}))
	}
	q.Overrides = readList(d, func(o *Override) table { return overrideTable(o, &Plugin{}) },
		func(o *Override, t table, values map[string]any) {
			o.Table, o.Plugin = t.name, d.readPlugin(t, values)
		})
	o.Rest = &Plugin{}
	d.plugin(o.table(&o.Plugin))
	d.plugin(o.restTable(o.Rest))
	o.Groups = readList(d, func(g *Group) table { return groupTable(g, &Plugin{}) },
		func(g *Group, t table, values map[string]any) {
			g.Table, g.Plugin = t.name, d.readPlugin(t, values)
		})
}

// readList reads an array of tables. bind returns the table schema for an element, and read decodes
// the element's values.
func readList[T any](d *decoder, bind func(*T) table,
	read func(e *T, t table, values map[string]any)) []T {
	t := bind(new(T))
	raw := d.raw(t.name)
	if raw == nil {
		return nil
	}
	list, ok := schema.TablesOf(raw)
	if !ok {
		d.Report(t.name, "found "+schema.Describe(raw), "want an array of tables "+t.title())
		return nil
	}
	out := make([]T, len(list))
	for i, values := range list {
		element := bind(&out[i])
		element.name = plaintoml.Indexed(t.name, i)
		read(&out[i], element, values)
	}
	return out
}

func (d *decoder) plugin(t table) (p *Plugin, given bool) {
	values, given := d.table(t)
	p = d.readPlugin(t, values)
	return p, given
}

// readPlugin decodes a plugin's table and records problems in d. It returns nil if the table is
// absent or names no plugin, or "none".
func (d *decoder) readPlugin(t table, values map[string]any) *Plugin {
	p := t.plugin
	p.Table = t.name
	for _, k := range t.keys {
		if k.Default != nil {
			k.Set(k.Default)
		}
	}
	if values == nil {
		return nil
	}
	var params []string
	d.Each(t.name, values, t.keys, func(name string, raw any) {
		switch {
		case slices.Contains(t.children(), name):
			// Child tables, such as [quantizer.weights], are read separately.
		case schema.IsTable(raw):
			found, hint := "found a table", wantParam
			if near := schema.Nearest(name, t.children()); near != "" {
				found, hint = "unknown table", "did you mean "+t.path(near)+"?"
			}
			d.Report(t.path(name), found, hint)
		default:
			params = append(params, name)
		}
	})
	slices.Sort(params)
	var selecting []string // the keys of which a group or an override needs one
	hint := `want match, roles or both, such as roles = "head"; match = "*" selects all parameters`
	switch {
	case t.key("roles") != nil:
		selecting = []string{"match", "roles"}
	case t.key("layers") != nil:
		selecting = []string{"match", "layers"}
		hint = `want match or layers, such as layers = [0, -1]; match = "*" selects everything`
	}
	given := func(key string) bool { return d.Given(t.path(key)) }
	if selecting != nil && !slices.ContainsFunc(selecting, given) {
		d.Report(t.name, "selects nothing", hint)
	}
	d.checkPluginNamed(t, values, params)
	if p.Name == "" || p.Name == noPlugin {
		return nil
	}
	for _, name := range params {
		ok := false
		switch x := values[name].(type) {
		case int64, string, bool:
			ok = true
		case float64:
			ok = schema.Finite(x)
		}
		if !ok {
			d.Report(p.Path(name), "found "+schema.Describe(values[name]), wantParam)
			continue
		}
		if p.Params == nil {
			p.Params = map[string]any{}
		}
		p.Params[name] = values[name]
	}
	return p
}

const wantParam = "want an integer, a finite number, a string or a boolean"

// checkPluginNamed reports that the key plugin is missing. It is optional in a [quantizer] that
// only contains tables for roles, and in a group that sets no parameters of its optimizer.
func (d *decoder) checkPluginNamed(t table, values map[string]any, params []string) {
	k := t.key("plugin")
	_, named := values["plugin"]
	_, pinned := values["sha256"]
	onlyTables := len(values) > 0 // unknown tables have been reported already
	for key, v := range values {
		onlyTables = onlyTables && (slices.Contains(t.children(), key) || schema.IsTable(v))
	}
	optional := !pinned && len(params) == 0 && (k.Optional != "" || onlyTables)
	if named || k.Default != nil || optional {
		return
	}
	msg := "missing"
	if len(params) > 0 {
		msg = "missing, but found " + strings.Join(params, ", ")
	}
	d.Report(t.path("plugin"), msg, "want the name of a plugin, such as plugin = "+t.example)
}
