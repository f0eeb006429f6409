package config

import (
	"fmt"
	"slices"
	"sort"
	"strings"

	"github.com/BurntSushi/toml"
)

// plugins reads the tables of plugins and gives each role its own.
func (d *decoder) plugins() {
	readInto := func(t table, element any) (*Plugin, bool) {
		values, ok := d.table(t)
		if !ok {
			return nil, false
		}
		return d.plugin(t, values, element), true
	}
	read := func(t table) (*Plugin, bool) { return readInto(t, nil) }
	both, _ := read(quantizerTable)
	role := func(t table) *Plugin {
		if p, own := read(t); own || both == nil {
			return p
		}
		shared := *both
		shared.Params = slices.Clone(both.Params)
		return &shared
	}
	d.cfg.Quantizer.Weights = role(weightsTable)
	d.cfg.Quantizer.Activations = role(activationsTable)
	d.cfg.Quantizer.Overrides = readList(d, overridesTable, func(t table, values map[string]any) (o Override) {
		o.Table, o.Plugin = t.name, d.plugin(t, values, &o)
		return o
	})
	optimizer := func(t table) *Plugin {
		if p, given := readInto(t, &d.cfg.Optimizer); given && p != nil {
			return p
		}
		return &Plugin{Table: t.name, Name: t.field("plugin").def.(string)}
	}
	d.cfg.Optimizer.Plugin, d.cfg.Optimizer.Rest = *optimizer(optimizerTable), optimizer(restTable)
	d.cfg.Optimizer.Groups = readList(d, groupsTable, func(t table, values map[string]any) (g Group) {
		g.Table, g.Plugin = t.name, d.plugin(t, values, &g)
		return g
	})
}

// readList reads an array of tables; one gets the table with its index in the name.
func readList[T any](d *decoder, t table, one func(table, map[string]any) T) []T {
	raw := dig(d.values, strings.Split(t.name, "."))
	if raw == nil {
		return nil
	}
	list, ok := tablesOf(raw)
	if !ok {
		d.report(t.name, "found "+Describe(raw), "want an array of tables "+t.title())
		return nil
	}
	var out []T
	for i, values := range list {
		element := t
		element.name = indexed(t.name, i)
		out = append(out, one(element, values))
	}
	return out
}

// plugin reads a plugin's table. nil when it has no plugin or "none"; the
// problems are recorded. The keys of ours in a table of optimizers or in an element of
// a list of tables, which is nil for other tables, go into element.
func (d *decoder) plugin(t table, values map[string]any, element any) *Plugin {
	p := &Plugin{Table: t.name}
	if def, ok := t.field("plugin").def.(string); ok {
		p.Name = def
	}
	var params []string
	for key, raw := range values {
		path, f := joinKey(t.name, key), t.field(key)
		switch {
		case key == "plugin":
			d.field(*f, path, raw, func(v any) { p.Name = v.(string) })
		case key == "sha256":
			d.field(*f, path, raw, func(v any) { p.SHA256 = v.(string) })
		case f != nil:
			d.field(*f, path, raw, func(v any) { assign(f.in(element), v) })
		case slices.Contains(t.children(), key):
			// [quantizer.weights] is read on its own.
		case isTable(raw) || isTables(raw):
			d.subTable(t, key)
		default:
			params = append(params, key)
		}
	}
	sort.Strings(params)
	d.elementDefaults(t, params, element)
	d.pluginNamed(t, values, params)
	if p.Name == "" || p.Name == noPlugin {
		return nil
	}
	for _, key := range params {
		d.param(p, key, values[key])
	}
	return p
}

// elementDefaults fills in what is not given of the keys of an element, and reports what is missing.
func (d *decoder) elementDefaults(t table, params []string, element any) {
	given := func(key string) bool { return d.given[joinKey(t.name, key)] }
	for _, f := range t.fields {
		switch path := joinKey(t.name, f.key); {
		case f.in == nil || given(f.key):
		case f.def != nil:
			assign(f.in(element), f.def)
		case f.optional == "" && !d.misspelt(t, f.key, params):
			d.missing(t, f, path)
		}
	}
	if t.field("roles") == nil || given("match") || given("roles") {
		return
	}
	if !d.misspelt(t, "match", params) && !d.misspelt(t, "roles", params) {
		d.report(t.name, "selects nothing", `want match, roles or both, such as roles = "head"; match = "*" is all parameters`)
	}
}

// misspelt reports the parameter that was probably meant to be the key, if any.
func (d *decoder) misspelt(t table, key string, params []string) bool {
	near := Nearest(key, params)
	if near == "" {
		return false
	}
	d.report(joinKey(t.name, near), "unknown key", "did you mean "+joinKey(t.name, key)+"?")
	return true
}

const wantParam = "want an integer, a finite number, a string, a boolean, or an array of one of these"

func (d *decoder) param(p *Plugin, key string, raw any) {
	path := p.Path(key)
	v, bad := paramValue(raw)
	if bad != "" {
		d.report(path, "found "+bad, wantParam)
		return
	}
	line := d.origin.at(path).Line
	p.Params = append(p.Params, Param{Key: key, Value: v, Line: line})
}

// subTable reports a table where none belongs.
func (d *decoder) subTable(t table, key string) {
	path := joinKey(t.name, key)
	if near := Nearest(key, t.children()); near != "" {
		d.report(path, "unknown table", "did you mean "+joinKey(t.name, near)+"?")
		return
	}
	d.report(path, "found a table", wantParam)
}

// pluginNamed reports a table that does not name its plugin: one that sets
// parameters or nothing at all, or that misspells the key. A [quantizer] that
// only holds the tables of the roles needs none, nor does a group that gives the
// optimizer no parameters.
func (d *decoder) pluginNamed(t table, values map[string]any, params []string) {
	if _, named := values["plugin"]; named || d.misspelt(t, "plugin", params) {
		return
	}
	f := t.field("plugin")
	_, pinned := values["sha256"]
	if f.def != nil || !pinned && len(params) == 0 && (f.optional != "" || onlyTables(t, values)) {
		return
	}
	msg := "missing"
	if f.optional != "" && len(params) > 0 {
		for _, key := range params {
			for _, own := range t.fields {
				if !d.given[joinKey(t.name, own.key)] && Nearest(key, []string{own.key}) != "" {
					d.misspelt(t, own.key, []string{key})
					return
				}
			}
		}
		msg = fmt.Sprintf("missing, but %s is set", params[0])
	}
	d.report(joinKey(t.name, "plugin"), msg, "want the name of a plugin, such as plugin = "+t.example)
}

// onlyTables reports whether a table holds tables, and nothing else. Which of these
// are not known has been reported.
func onlyTables(t table, values map[string]any) bool {
	children := t.children()
	for key, v := range values {
		if !slices.Contains(children, key) && !isTable(v) && !isTables(v) {
			return false
		}
	}
	return len(values) > 0
}

func isTable(v any) bool {
	_, ok := v.(map[string]any)
	return ok
}

// isTables reports whether a value is an array of at least one table.
func isTables(v any) bool {
	list, ok := tablesOf(v)
	return ok && len(list) > 0
}

// tablesOf returns the tables of an array of tables, in either notation.
func tablesOf(v any) ([]map[string]any, bool) {
	switch v := v.(type) {
	case []map[string]any:
		return v, true
	case []any:
		return sliceOf[map[string]any](v)
	}
	return nil, false
}

// indexed is the name of an element of an array of tables.
func indexed(name string, i int) string { return fmt.Sprintf("%s[%d]", name, i) }

// joinKey appends a part to a dotted key, quoted where TOML needs it.
func joinKey(table, key string) string {
	quoted := toml.Key{key}.String()
	if table == "" {
		return quoted
	}
	return table + "." + quoted
}
