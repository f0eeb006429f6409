package config

import (
	"fmt"
	"slices"

	"github.com/cage-qat/cage/internal/plaintoml"
	"github.com/cage-qat/cage/internal/schema"
)

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
