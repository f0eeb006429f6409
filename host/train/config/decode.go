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
		func(o *Override, table string, p *Plugin) { o.Table, o.Plugin = table, p })
	o.Rest = &Plugin{}
	d.plugin(o.table(&o.Plugin))
	d.plugin(o.restTable(o.Rest))
	o.Groups = readList(d, func(g *Group) table { return groupTable(g, &Plugin{}) },
		func(g *Group, table string, p *Plugin) { g.Table, g.Plugin = table, p })
}

// readList reads an array of tables; one is the table of an element, which done gets with
// its name and plugin.
func readList[T any](d *decoder, one func(*T) table, done func(e *T, table string, p *Plugin)) []T {
	t := one(new(T))
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
		element := one(&out[i])
		element.name = plaintoml.Indexed(t.name, i)
		done(&out[i], element.name, d.readPlugin(element, values))
	}
	return out
}

func (d *decoder) plugin(t table) (p *Plugin, given bool) {
	values, given := d.table(t)
	p = d.readPlugin(t, values)
	return p, given
}

// readPlugin reads a plugin's table, and returns its plugin; nil when it has none, or
// "none". The problems are recorded.
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
			// [quantizer.weights] is read on its own.
		case schema.IsTable(raw):
			d.subTable(t, name)
		default:
			params = append(params, name)
		}
	})
	slices.Sort(params)
	d.missingKeys(t, params)
	d.checkPluginNamed(t, values, params)
	if p.Name == "" || p.Name == noPlugin {
		return nil
	}
	for _, name := range params {
		d.param(p, name, values[name])
	}
	return p
}

func (d *decoder) missingKeys(t table, params []string) {
	given := func(name string) bool { return d.Given(t.path(name)) }
	var selecting []string
	hint := `want match, roles or both, such as roles = "head"; match = "*" is all parameters`
	switch {
	case t.key("roles") != nil:
		selecting = []string{"match", "roles"}
	case t.key("layers") != nil:
		selecting, hint = []string{"match", "layers", "from", "to"}, `want match, layers, from or to, such as layers = [0, -1]; match = "*" is everything`
	}
	if selecting == nil || slices.ContainsFunc(selecting, given) || slices.ContainsFunc(selecting, func(key string) bool { return d.misspelt(t, key, params) }) {
		return
	}
	d.Report(t.name, "selects nothing", hint)
}

// misspelt reports the parameter that was probably meant to be the key, if any.
func (d *decoder) misspelt(t table, key string, params []string) bool {
	near := schema.Nearest(key, params)
	if near == "" {
		return false
	}
	d.Report(t.path(near), "unknown key", "did you mean "+t.path(key)+"?")
	return true
}

const wantParam = "want an integer, a finite number, a string or a boolean"

func (d *decoder) param(p *Plugin, key string, raw any) {
	ok := false
	switch x := raw.(type) {
	case int64, string, bool:
		ok = true
	case float64:
		ok = schema.Finite(x)
	}
	if !ok {
		d.Report(p.Path(key), "found "+schema.Describe(raw), wantParam)
		return
	}
	if p.Params == nil {
		p.Params = map[string]any{}
	}
	p.Params[key] = raw
}

func (d *decoder) subTable(t table, key string) {
	path := t.path(key)
	if near := schema.Nearest(key, t.children()); near != "" {
		d.Report(path, "unknown table", "did you mean "+t.path(near)+"?")
		return
	}
	d.Report(path, "found a table", wantParam)
}

// checkPluginNamed reports a table that does not name its plugin: one that sets
// parameters or nothing at all, or that misspells the key. A [quantizer] that
// only holds the tables of the roles needs none, nor does a group that gives the
// optimizer no parameters.
func (d *decoder) checkPluginNamed(t table, values map[string]any, params []string) {
	if _, named := values["plugin"]; named || d.misspelt(t, "plugin", params) {
		return
	}
	k := t.key("plugin")
	_, pinned := values["sha256"]
	if k.Default != nil || !pinned && len(params) == 0 && (k.Optional != "" || onlyTables(t, values)) {
		return
	}
	msg := "missing"
	if k.Optional != "" && len(params) > 0 {
		for _, name := range params {
			for _, own := range t.keys {
				if !d.Given(t.path(own.Name)) && schema.Nearest(name, []string{own.Name}) != "" {
					d.misspelt(t, own.Name, []string{name})
					return
				}
			}
		}
		msg = fmt.Sprintf("missing, but %s is set", params[0])
	}
	d.Report(t.path("plugin"), msg, "want the name of a plugin, such as plugin = "+t.example)
}

// onlyTables reports whether a table holds tables, and nothing else. Which of these
// are not known has been reported.
func onlyTables(t table, values map[string]any) bool {
	children := t.children()
	for key, v := range values {
		if !slices.Contains(children, key) && !schema.IsTable(v) {
			return false
		}
	}
	return len(values) > 0
}
