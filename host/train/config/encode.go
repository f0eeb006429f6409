package config

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/cage-qat/cage/host/model/architecture"
	"github.com/cage-qat/cage/internal/lists"
	"github.com/cage-qat/cage/internal/plaintoml"
	"github.com/cage-qat/cage/internal/schema"
)

type setting struct {
	table string // dotted name, with its index in an array; "" for the top level
	key   string // quoted where TOML needs it
	path  string // full dotted key
	value string // TOML text
	def   bool   // value is the default, independent of other keys
}

// Heading is the first line of the output of [Config.Encode], by which such files are recognized.
const Heading = "# A resolved training run: every default is filled in.\n"

// Encode returns the resolved configuration as TOML, in a fixed order. [Load] reads it back as an
// equal configuration (see [Diff]), with which the run can be repeated.
func (c *Config) Encode() []byte {
	var b bytes.Buffer
	b.WriteString(Heading)
	table := ""
	for _, s := range c.settings(c.Quantizer.Weights.same(c.Quantizer.Activations)) {
		if s.table != table {
			table = s.table
			heading := "[" + table + "]"
			if strings.HasSuffix(table, "]") { // next element of an array of tables
				heading = "[[" + plaintoml.ParentKey(table) + "]]"
			}
			fmt.Fprintf(&b, "\n%s\n", heading)
		}
		fmt.Fprintf(&b, "%s = %s\n", s.key, s.value)
	}
	return b.Bytes()
}

// Difference is a key whose values in two configurations differ. A and B are the values as TOML, or
// "" if a configuration does not have the key.
type Difference struct{ Key, A, B string }

// Diff lists the keys whose values differ between a and b, starting with the keys of a. It ignores
// positions in files, and whether one [quantizer] table configures both weights and activations.
func Diff(a, b *Config) []Difference {
	var list []Difference
	at := map[string]int{} // the index in list, by key
	for _, s := range a.settings(false) {
		at[s.path] = len(list)
		list = append(list, Difference{s.path, s.value, ""})
	}
	for _, s := range b.settings(false) {
		i, both := at[s.path]
		if !both {
			i, list = len(list), append(list, Difference{Key: s.path})
		}
		list[i].B = s.value
	}
	return slices.DeleteFunc(list, func(d Difference) bool { return d.A == d.B })
}

// Incidental lists the keys that do not affect what a run computes and records.
func Incidental() []string {
	return []string{
		"train.out", "train.checkpoint_every", "train.checkpoint_minutes", "train.keep",
		"train.recompute", "train.tensorboard", "device.threads", "device.peak_tflops",
		"device.allocator", "device.preallocate", "device.memory_fraction", "device.cache",
		"device.timeout_minutes"}
}

// Fingerprint returns a hash of everything that determines what a run computes and records. It does
// not depend on [Incidental] keys, such as the run directory and the number of threads. Keys with
// default values are excluded, so that adding a key to the schema changes no fingerprint.
func (c *Config) Fingerprint() string {
	h := sha256.New()
	for _, s := range c.settings(false) {
		// The default depends on train.average, so def is never set. Runs without an average must
		// keep the fingerprints that they had before the key was introduced.
		unaveraged := s.path == "train.average_from" && c.Train.Averaging() == nil
		if !unaveraged && !s.def && !slices.Contains(Incidental(), s.path) {
			fmt.Fprintf(h, "%s = %s\n", s.path, s.value)
		}
	}
	return fmt.Sprintf("%x", h.Sum(nil))
}

// settings lists the keys and values in schema order. If shared is set, a single [quantizer] table
// configures both weights and activations.
func (c *Config) settings(shared bool) (list settingsList) {
	for _, t := range c.tables() {
		switch {
		case t.name == "data.mixture":
			for i := range c.Data.Mixture {
				source := mixtureTable(&c.Data.Mixture[i])
				source.name = plaintoml.Indexed(t.name, i)
				list.table(source, c)
			}
		case t.name == "quantizer": // the first one of a plugin
			for _, t := range c.configuredPlugins(shared) {
				list.table(t, c)
			}
		case t.plugin == nil:
			list.table(t, c)
		}
	}
	return list
}

// configuredPlugins returns the configuration's plugin tables, in the order of pluginTables.
func (c *Config) configuredPlugins(shared bool) (list []table) {
	q, o := &c.Quantizer, &c.Optimizer
	orNone := func(p *Plugin) *Plugin { return cmp.Or(p, &Plugin{Name: noPlugin}) }
	switch {
	case !shared:
		list = append(list, roleTable(RoleWeights, orNone(q.Weights)),
			roleTable(RoleActivations, orNone(q.Activations)))
	case q.Weights != nil:
		list = append(list, quantizerTable(q.Weights))
	}
	for _, role := range ownRoles {
		if p := *q.role(role); p != nil {
			list = append(list, roleTable(role, p))
		}
	}
	for i := range q.Overrides {
		t := overrideTable(&q.Overrides[i], orNone(q.Overrides[i].Plugin))
		t.name = plaintoml.Indexed(t.name, i)
		list = append(list, t)
	}
	list = append(list, o.table(&o.Plugin), o.restTable(o.Rest))
	for i := range o.Groups {
		t := groupTable(&o.Groups[i], cmp.Or(o.Groups[i].Plugin, &Plugin{}))
		t.name = plaintoml.Indexed(t.name, i)
		list = append(list, t)
	}
	return list
}

type settingsList []setting

func (l *settingsList) add(table, key string, value any, def bool) {
	*l = append(*l, setting{table, plaintoml.JoinKey("", key), plaintoml.JoinKey(table, key),
		plaintoml.Setting{Value: value}.Text(), def})
}

func (l *settingsList) table(t table, c *Config) {
	_, selected := t.selector(c)
	for _, k := range t.keys {
		v := k.Value()
		if t.plugin == nil {
			if v != nil && t.applies(k, c) && k.Belongs(selected) {
				l.add(t.name, k.Name, v, reflect.DeepEqual(v, k.DefaultValue()))
			}
			continue
		}
		switch unnamed := t.plugin.Name == ""; {
		case v == nil || k.Name == "plugin" && unnamed:
		case k.Name == "plugin": // never a default: the schema does not define what a plugin does
			l.add(t.name, k.Name, v, false)
		case k.Name != "sha256":
			l.add(t.name, k.Name, v, reflect.DeepEqual(v, k.DefaultValue()))
		case !unnamed && t.plugin.Name != noPlugin:
			l.add(t.name, k.Name, v, v == "")
			for _, name := range slices.Sorted(maps.Keys(t.plugin.Params)) {
				l.add(t.name, name, t.plugin.Params[name], false)
			}
		}
	}
}

// Reference returns Markdown that documents the type, range, default and meaning of every key, and
// the presets.
func Reference() string {
	var b strings.Builder
	b.WriteString("# Configuration of a training run\n\n" +
		"A TOML file. Keys match exactly; an unknown key is an error. Any key can be set on the\n" +
		"command line: `--set train.steps=100`, `--set 'model.preset=\"30M\"'`; in an array of\n" +
		"tables by index, `--set 'quantizer.overrides[0].bits=3'`, where the first unused index\n" +
		"adds a table.\n")
	for _, t := range new(Config).tables() {
		b.WriteString("\n## " + t.title() + "\n\n")
		if t.doc != "" {
			b.WriteString(t.doc + "\n")
		}
		if t.absent != "" {
			b.WriteString("When the table is absent: " + t.absent + ".\n")
		}
		if t.doc != "" || t.absent != "" {
			b.WriteString("\n")
		}
		b.WriteString("| key | value | default | meaning |\n|---|---|---|---|\n")
		for _, k := range t.keys {
			absent, doc := cmp.Or(k.Optional, "required"), k.Doc
			switch {
			case k.Default != nil:
				absent = fmt.Sprint(k.DefaultValue())
				switch x := k.DefaultValue().(type) {
				case string:
					absent = strconv.Quote(x)
				case float64:
					absent = schema.Decimal(x)
				case []string:
					absent = "[" + schema.Quoted(x) + "]"
				}
				absent = "`" + absent + "`"
			case k.Derive != nil:
				absent = k.Derived
			}
			if inPresets(t.path(k.Name)) {
				absent += ", or the preset's"
			}
			switch {
			case slices.Equal(k.For, architecture.Languages) && t.name == "model":
			case slices.Equal(k.For, architecture.Languages):
				doc = "LM: " + doc
			case len(k.For) > 0:
				doc = strings.Join(k.For, ", ") + ": " + doc
			}
			fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", k.Name, k.Wants(), absent, doc)
		}
		if t.sample != "" {
			b.WriteString("\n```toml\n" + t.sample + "```\n")
		}
	}
	b.WriteString("\n## Presets\n\n" +
		"`model.preset` fixes the sizes; the other columns are defaults. All have context 512, batch\n" +
		"64 and accumulate 8; vocab is 32000, for olmo2 100352. Parameters exclude embedding and\n" +
		"output head. The OLMo2 presets 30M and 60M are OLMo-core's, whose names count the embedding;\n" +
		"50M has the sizes of the Llama 50M. 1700M and 3200M are from QuEST's train.sh, with 10.75 and\n" +
		"20 billion tokens: 6 per parameter, the others 100.\n\n" +
		"| kind | preset | layers | heads | width | hidden | parameters | steps | warm-up | rate |\n" +
		"|---|---|---|---|---|---|---|---|---|---|\n")
	for _, p := range architecture.Presets() {
		fmt.Fprintf(&b, "| %s | %s | %d | %d | %d | %d | %d | %d | %d | %s |\n",
			p.Kind, p.Name, p.Layers, p.Heads, p.Width, p.Hidden, p.Parameters(), p.Steps, p.Warmup,
			schema.Decimal(p.Rate))
	}
	return b.String()
}

func (t table) title() string {
	switch {
	case t.name == "":
		return "Top level"
	case t.list:
		return "[[" + t.name + "]]"
	default:
		return "[" + t.name + "]"
	}
}

type table struct {
	name string // dotted; "" for the top level
	doc  string
	keys []schema.Key

	// Set only in plugin tables, whose other keys are the plugin's parameters.
	plugin  *Plugin
	example string // a plugin's name, quoted
	absent  string // describes the absent table

	models []string // kinds of models to which the table applies; nil: all
	list   bool     // an array of tables
	sample string   // TOML example
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
	names := lists.Map(t.keys, func(k schema.Key) string { return k.Name })
	return append(names, t.children()...)
}

func (t table) children() []string {
	var names []string
	for _, other := range tableNames() {
		if other != "" && plaintoml.ParentKey(other) == t.name {
			names = append(names, other[strings.LastIndexByte(other, '.')+1:])
		}
	}
	return names
}

// tableNames lists the names of all tables. It builds the tables, with all of their keys, only
// once, because reading a configuration asks for the names many times.
var tableNames = sync.OnceValue(func() []string {
	return lists.Map(new(Config).tables(), func(t table) string { return t.name })
})

// selector returns the key on which the valid keys of a table depend, and its value.
func (t table) selector(c *Config) (key, value string) {
	if t.name == "method" {
		return "method.name", c.Method.Name
	}
	return "model.kind", c.Model.Kind
}

// applies reports whether a key applies to the configuration's kind of model. Keys of other methods
// do apply and get their defaults.
func (t table) applies(k schema.Key, c *Config) bool {
	switch {
	case c.untrained && c.trains(t.name):
		return false
	case t.path(k.Name) == "method.lambda" && c.Method.CAGE.Strength != nil:
		return false // λ follows from the strength
	case t.name == distillationTable && c.Train.Distillation.Teacher == "",
		t.name == adaptersTable && c.Adapters.Rank == 0:
		return false
	case t.path(k.Name) == "train.steps" && c.Data.Kind == KindChat && c.Train.Steps == 0:
		return c.untrained // otherwise the conversations determine the number of steps
	}
	if k.For == nil || t.name == "method" {
		return t.models == nil || slices.Contains(t.models, c.Model.Kind)
	}
	return k.Belongs(c.Model.Kind)
}

// trains reports whether the table only concerns training. [data] does unless it has a validation
// set.
func (c *Config) trains(table string) bool {
	return table == "schedule" || table == distillationTable || table == adaptersTable ||
		table == "data" && c.Data.Validation == ""
}
