package config

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/cage-qat/cage/host/model/architecture"
	"github.com/cage-qat/cage/internal/plaintoml"
	"github.com/cage-qat/cage/internal/schema"
)

// One mistake can have many consequences: without the name of a table, all its keys are
// missing. The functions of this file find the mistake, and keep its consequences from
// being reported as if they were mistakes of their own.

// meantTable guesses the table meant by an unknown one: one of a similar name, else the
// absent one that has all its keys.
func (d *decoder) meantTable(t table, key string, raw any) string {
	if near := schema.Nearest(key, t.children()); near != "" {
		return t.path(near)
	}
	values, ok := raw.(map[string]any)
	if !ok || t.name != "" || len(values) == 0 {
		return ""
	}
	var meant []string
	for _, other := range d.schema {
		absent := other.name != "" && !strings.Contains(other.name, ".") && d.raw(other.name) == nil
		if absent && !slices.ContainsFunc(slices.Collect(maps.Keys(values)), func(name string) bool { return other.key(name) == nil }) {
			meant = append(meant, other.name)
		}
	}
	if len(meant) != 1 {
		return ""
	}
	return meant[0]
}

// fold adds the keys whose tables are absent to the error about the unknown table that
// may be one of these.
func (d *decoder) fold() {
	if len(d.orphans) == 0 {
		return
	}
	i := slices.IndexFunc(d.Errs, func(e *plaintoml.Error) bool { return slices.Contains(d.strangers, e.Key) })
	slices.Sort(d.orphans)
	d.Errs[i].Hint += "; missing: " + strings.Join(d.orphans, ", ")
}

// kindOfKeys reports that model.kind is missing when keys are given that a model of the
// default kind does not have, and one of another kind has all of. That kind is then
// assumed.
func (d *decoder) kindOfKeys() {
	var foreign []string
	kinds := slices.Clone(architecture.Kinds)
	for _, t := range d.schema {
		if t.plugin != nil || t.list || t.name == "method" {
			continue
		}
		for _, k := range t.keys {
			if path := t.path(k.Name); d.Given(path) && k.For != nil {
				kinds = slices.DeleteFunc(kinds, func(kind string) bool { return !k.Belongs(kind) })
				if !k.Belongs(architecture.KindLlama) {
					foreign = append(foreign, path)
				}
			}
		}
	}
	if len(foreign) == 0 || len(kinds) == 0 {
		return
	}
	d.Report("model.kind", "missing", fmt.Sprintf("want kind = %s, which has %s; without kind the model is a %s",
		strings.ReplaceAll(schema.Quoted(kinds), ", ", " or "), strings.Join(foreign, ", "), architecture.KindLlama))
	d.cfg.Model.Kind = kinds[0]
	d.Assume("model.kind")
}
