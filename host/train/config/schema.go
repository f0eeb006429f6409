package config

import (
	"slices"
	"strings"

	"github.com/cage-qat/cage/host/model/architecture"
	"github.com/cage-qat/cage/internal/plaintoml"
	"github.com/cage-qat/cage/internal/schema"
)

type table struct {
	name string // dotted; "" for the top level
	doc  string
	keys []schema.Key

	// For the table of a plugin, whose other keys are the plugin's parameters:
	plugin  *Plugin
	example string // a plugin's name, quoted
	absent  string // what it means when the table is absent
	short   bool   // a string in place of the table is the plugin's name

	models []string // kinds of the models that have the table; nil: all
	list   bool     // an array of tables
	sample string   // TOML that shows the use
}

func (t table) path(key string) string { return plaintoml.JoinKey(t.name, key) }

func (t table) key(name string) *schema.Key {
	i := slices.IndexFunc(t.keys, func(k schema.Key) bool { return k.Name == name })
	if i < 0 {
		return nil
	}
	return &t.keys[i]
}

func (t table) names() []string {
	var names []string
	for _, k := range t.keys {
		names = append(names, k.Name)
	}
	return append(names, t.children()...)
}

func (t table) children() []string {
	var names []string
	for _, other := range new(Config).tables() {
		if other.name != "" && plaintoml.ParentKey(other.name) == t.name {
			names = append(names, other.name[strings.LastIndexByte(other.name, '.')+1:])
		}
	}
	return names
}

// selector is the key on whose value it depends which keys a table has, with that value.
func (t table) selector(c *Config) (key, value string) {
	if t.name == "method" {
		return "method.name", c.Method.Name
	}
	return "model.kind", c.Model.Kind
}

// applies reports whether a key is one of the configuration's kind of model. The keys of
// other methods apply, too: they have their defaults.
func (t table) applies(k schema.Key, c *Config) bool {
	if c.untrained && c.trains(t.name) || t.name == distillationTable && c.Train.Distillation.Teacher == "" {
		return false
	}
	if t.name == "train" && k.Name == "steps" && c.Data.Kind == KindChat && c.Train.Steps == 0 && !c.untrained {
		return false // they follow from the conversations
	}
	if k.For == nil || t.name == "method" {
		return t.models == nil || slices.Contains(t.models, c.Model.Kind)
	}
	return k.Belongs(c.Model.Kind)
}

// trains reports whether a table is one that a run without steps has not. It may name data to evaluate on.
func (c *Config) trains(table string) bool {
	return table == "schedule" || table == distillationTable || table == "data" && c.Data.Validation == ""
}

// knownKeys lists what may stand in a table, given the kind of model that the file names.
func (d *decoder) knownKeys(t table) []string {
	kind, ok := d.Lookup("model", "kind").(string)
	if !ok {
		kind = architecture.KindLlama
	}
	guess := &Config{Model: architecture.Settings{Kind: kind}}
	guess.Train.Distillation.Teacher = TeacherInitial
	return slices.DeleteFunc(t.names(), func(name string) bool {
		k := t.key(name)
		return k != nil && slices.Contains(architecture.Kinds, kind) && !t.applies(*k, guess)
	})
}
