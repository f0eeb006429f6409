package config

const aboutParams = "Every other key is a parameter of the plugin (`cage plugins show NAME` lists them)."

var quantizerTable = table{
	name: "quantizer", plugin: true, example: `"quest"`,
	doc:    "The quantizer of weights and activations. " + aboutParams,
	absent: "unquantized, unless the table of a role or an override says otherwise",
	fields: pluginFields(field{}),
}

var weightsTable = table{
	name: "quantizer.weights", plugin: true, example: `"quest"`,
	doc:    "The quantizer of weights, in place of all that [quantizer] says.",
	absent: "as [quantizer]",
	fields: pluginFields(field{}),
}

var activationsTable = table{
	name: "quantizer.activations", plugin: true, example: `"quest"`,
	doc:    "The quantizer of activations, in place of all that [quantizer] says.",
	absent: "as [quantizer]",
	fields: pluginFields(field{}),
}

var overridesTable = table{
	name: "quantizer.overrides", plugin: true, list: true, example: `"absmax"`,
	doc: "Another quantizer, or none, for some weights and activations, in place of all that the tables above say. The\n" +
		"last override that matches wins. " + aboutParams,
	sample: `[quantizer]
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
`,
	fields: append([]field{
		{key: "match", kind: texts, is: pattern(),
			in:  func(e any) any { return &e.(*Override).Match },
			doc: "names of parameters (weights) and of sites (activations); `*` stands for any run of characters"},
		{key: "role", kind: text, is: oneOf(RoleWeights, RoleActivations, roleBoth), def: roleBoth,
			in:  func(e any) any { return &e.(*Override).Role },
			doc: "what the override is about"},
	}, pluginFields(field{})...),
}

// pluginFields are the two keys of ours in a plugin's table. named says what holds
// when the table names no plugin: a default, or the words of optional; with neither
// the plugin is required, and may be "none".
func pluginFields(named field) []field {
	named.key, named.kind = "plugin", text
	named.doc = "name of the plugin, or a path (with a slash)"
	named.is = rule{
		words: "that names a plugin",
		ok:    func(v any) bool { return v.(string) != "" && v.(string) != noPlugin },
	}
	if named.def == nil && named.optional == "" {
		named.doc += `; "none": unquantized, and the parameters are ignored`
		named.is = nonEmpty("that names a plugin")
	}
	return []field{
		named,
		{key: "sha256", kind: text, is: hash(), def: "",
			doc: "SHA-256 that the plugin's executable must have; empty: any"},
	}
}
