package config

// defaultOptimizer is the plugin of an [optimizer] that names none.
const defaultOptimizer = "adamw"

var tensorRoles = []string{"matrix", "vector", "embedding", "head"}

var optimizerTable = table{
	name: "optimizer", plugin: true, example: `"adamw"`,
	doc:    "The optimizer. " + aboutParams,
	absent: "AdamW with its defaults",
	fields: append(pluginFields(field{def: defaultOptimizer}), refreshDelay(func(e any) any { return &e.(*Optimizer).RefreshDelay })),
}

// refreshDelay is the key of the main optimizer and of the one for the rest.
func refreshDelay(in func(element any) any) field {
	return field{key: "refresh_delay", kind: integer, is: from(0, maxRefreshDelay), def: int64(0), in: in, doc: aboutRefreshDelay}
}

const (
	maxRefreshDelay   = 1_000_000
	aboutRefreshDelay = "updates by which new preconditioners (SOAP, Shampoo) take effect late, except the first: they are computed on the host's " +
		"processors beside these steps, for a GPU that should not wait; below the updates between refreshes; 0: refreshes are waited for"
)

var restTable = table{
	name: "optimizer.rest", plugin: true, short: true, example: `"adamw"`,
	doc: "The optimizer of the tensors that [optimizer] is not meant for, such as embedding, head and vectors with\n" +
		"Muon. `rest = \"sgd\"` in [optimizer] is short for a table with that plugin. " + aboutParams,
	absent: "AdamW with its defaults",
	fields: append(pluginFields(field{def: defaultOptimizer}), refreshDelay(func(e any) any { return &e.(*Optimizer).RestRefreshDelay })),
}

var groupsTable = table{
	name: "optimizer.groups", plugin: true, list: true, example: `"adamw"`,
	doc: "Parts of the parameters with an optimizer, a rate or a decay of their own. A group holds the parameters whose\n" +
		"name and role are both among its match and roles, of which one must be given. The first group that matches wins;\n" +
		"parameters in no group have [optimizer]. Every other key is a parameter of the group's plugin, whose own\n" +
		"parameters cannot be set when they are named as a key below.",
	sample: `[optimizer]
plugin = "muon"

[optimizer.rest]             # embedding, head and vectors
plugin = "adamw"
beta2 = 0.95

[[optimizer.groups]]         # the head by plain SGD, at a tenth of the rate, without decay
match = "head"
plugin = "sgd"
rate = 0.1
weight_decay = 0.0
`,
	fields: append([]field{
		{key: "match", kind: texts, is: pattern(), def: []string{"*"},
			in:  func(e any) any { return &e.(*Group).Match },
			doc: "names of parameters; `*` stands for any run of characters"},
		{key: "roles", kind: texts, is: someOf(tensorRoles...), def: tensorRoles,
			in:  func(e any) any { return &e.(*Group).Roles },
			doc: "roles of parameters: weights of linear layers in blocks, norm weights and biases, token embedding, output head"},
		{key: "rate", kind: number, is: between(0, 1e6), def: 1.0,
			in:  func(e any) any { return &e.(*Group).Rate },
			doc: "factor of the learning rate"},
		{key: "weight_decay", kind: number, is: between(0, 1000), optional: "train.weight_decay for those that the model decays",
			in:  func(e any) any { return &e.(*Group).WeightDecay },
			doc: "decoupled weight decay of all tensors of the group"},
		{key: "refresh_delay", kind: integer, is: from(0, maxRefreshDelay), optional: "0 with a plugin of its own, else as without the group",
			in:  func(e any) any { return &e.(*Group).RefreshDelay },
			doc: aboutRefreshDelay},
	}, pluginFields(field{optional: "as without the group"})...),
}
