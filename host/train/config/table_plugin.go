package config

import (
	"github.com/cage-qat/cage/internal/schema"
	"github.com/cage-qat/cage/sdk"
)

const aboutParams = "Every other key is a parameter of the plugin (`cage plugins show NAME` lists them)."

// noPlugin in place of a quantizer's name leaves the role unquantized.
const noPlugin = "none"

// defaultOptimizer is the plugin of an [optimizer] that names none.
const defaultOptimizer = "adamw"

var tensorRoles = []string{string(sdk.TensorMatrix), string(sdk.TensorVector), string(sdk.TensorEmbedding), string(sdk.TensorHead)}

// pluginTables are the tables that name plugins, each tied to a new plugin, override
// or group: a configuration may have none or several of them. See the functions
// that make one.
func (c *Config) pluginTables() []table {
	return []table{
		quantizerTable(&Plugin{}), roleTable(RoleWeights, &Plugin{}), roleTable(RoleActivations, &Plugin{}), overrideTable(&Override{}, &Plugin{}),
		c.Optimizer.table(&Plugin{}), c.Optimizer.restTable(&Plugin{}), groupTable(&Group{}, &Plugin{}),
	}
}

func quantizerTable(p *Plugin) table {
	return table{name: "quantizer", plugin: p, example: `"quest"`, keys: quantizerKeys(p),
		doc:    "The quantizer of weights and activations. " + aboutParams,
		absent: "unquantized, unless the table of a role or an override says otherwise"}
}

// roleTable is the table of weights or of activations alone.
func roleTable(role string, p *Plugin) table {
	return table{name: "quantizer." + role, plugin: p, example: `"quest"`, keys: quantizerKeys(p),
		doc:    "The quantizer of " + role + ", instead of the one in [quantizer].",
		absent: "as [quantizer]"}
}

func overrideTable(o *Override, p *Plugin) table {
	return table{name: "quantizer.overrides", list: true, plugin: p, example: `"absmax"`, sample: overrideSample,
		doc: "Another quantizer, or none, for some weights and activations, instead of those of the tables above. The\n" +
			"last override that matches wins. " + aboutParams,
		keys: append([]schema.Key{
			{Name: "match", To: &o.Match, Is: schema.Patterns(),
				Doc: "names of parameters (weights) and of sites (activations); `*` stands for any run of characters"},
			{Name: "role", To: &o.Role, Is: schema.OneOf(RoleWeights, RoleActivations, roleBoth), Default: roleBoth,
				Doc: "what the override is about"},
		}, quantizerKeys(p)...)}
}

const overrideSample = `[quantizer]
plugin = "quest"
bits = 4

[[quantizer.overrides]]      # the first block in 8 bits
match = "layers.0.*"
plugin = "quest"
bits = 8

[[quantizer.overrides]]      # what enters the last product of a block stays as it is
match = "*.mlp.down.input"
role = "activations"
plugin = "none"
`

func (o *Optimizer) table(p *Plugin) table {
	return table{name: "optimizer", plugin: p, example: `"adamw"`, keys: optimizerKeys(p, &o.RefreshDelay),
		doc:    "The optimizer. " + aboutParams,
		absent: "AdamW with its defaults"}
}

func (o *Optimizer) restTable(p *Plugin) table {
	return table{name: "optimizer.rest", plugin: p, short: true, example: `"adamw"`, keys: optimizerKeys(p, &o.RestRefreshDelay),
		doc: "The optimizer of the tensors that [optimizer] is not meant for, such as embedding, head and vectors with\n" +
			"Muon. `rest = \"sgd\"` in [optimizer] is short for a table with that plugin. " + aboutParams,
		absent: "AdamW with its defaults"}
}

func groupTable(g *Group, p *Plugin) table {
	return table{name: "optimizer.groups", list: true, plugin: p, example: `"adamw"`, sample: groupSample,
		doc: "Parts of the parameters with an optimizer, a rate or a decay of their own. A group holds the parameters whose\n" +
			"name and role are both among its match and roles, at least one of which must be given. The first group that matches wins;\n" +
			"parameters in no group have [optimizer]. Every other key is a parameter of the group's plugin, whose own\n" +
			"parameters cannot be set when they are named as a key below.",
		keys: append([]schema.Key{
			{Name: "match", To: &g.Match, Is: schema.Patterns(), Default: []string{"*"},
				Doc: "names of parameters; `*` stands for any run of characters"},
			{Name: "roles", To: &g.Roles, Is: schema.OneOf(tensorRoles...), Default: tensorRoles,
				Doc: "roles of parameters: weights of linear layers in blocks, norm weights and biases, token embedding, output head"},
			{Name: "rate", To: &g.Rate, Is: schema.Between(0, 1e6), Default: 1.0,
				Doc: "factor of the learning rate; 0: parameters that stay as they are"},
			{Name: "weight_decay", To: &g.WeightDecay, Is: schema.Between(0, 1000),
				Optional: "train.weight_decay for those that the model decays",
				Doc:      "decoupled weight decay of all tensors of the group"},
			refreshDelay(schema.Key{To: &g.RefreshDelay, Optional: "0 with a plugin of its own, else as without the group"}),
		}, pluginKeys(p, schema.Key{Optional: "as without the group", Is: anOptimizer})...)}
}

const groupSample = `[optimizer]
plugin = "muon"

[optimizer.rest]             # embedding, head and vectors
plugin = "adamw"
beta2 = 0.95

[[optimizer.groups]]         # the head by plain SGD, at a tenth of the rate, without decay
match = "head"
plugin = "sgd"
rate = 0.1
weight_decay = 0.0
`

// anOptimizer is the range of an optimizer's name: there is no training without one.
var anOptimizer = schema.NonEmpty("that names a plugin", noPlugin)

// pluginKeys are the two keys of ours in every table of a plugin; name says what holds
// when the table names none.
func pluginKeys(p *Plugin, name schema.Key) []schema.Key {
	name.Name, name.To, name.Doc = "plugin", &p.Name, "name of the plugin, or a path (with a slash)"+name.Doc
	return []schema.Key{name, {Name: "sha256", To: &p.SHA256, Is: schema.Hash(), Default: "",
		Doc: "SHA-256 that the plugin's executable must have; empty: any"}}
}

func quantizerKeys(p *Plugin) []schema.Key {
	return pluginKeys(p, schema.Key{Is: schema.NonEmpty("that names a plugin"), Doc: `; "none": unquantized, and the parameters are ignored`})
}

func optimizerKeys(p *Plugin, delay *int) []schema.Key {
	return append(pluginKeys(p, schema.Key{Is: anOptimizer, Default: defaultOptimizer}), refreshDelay(schema.Key{To: delay, Default: 0}))
}

// refreshDelay completes the key that lets refreshes take effect late.
func refreshDelay(k schema.Key) schema.Key {
	k.Name, k.Is = "refresh_delay", schema.From(0, 1_000_000)
	k.Doc = "number of updates after which new preconditioners (SOAP, Shampoo) take effect, except the first ones, which take effect at once. Meanwhile the host's " +
		"processors compute them while training goes on, so that a GPU need not wait. Less than the number of updates between refreshes; 0: training waits for refreshes"
	return k
}
