package config

var trainTable = table{
	name: "train",
	doc:  "The loop. A step sees batch × accumulate sequences.",
	fields: []field{
		{key: "steps", is: from(1, most),
			at:     func(c *Config) any { return &c.Train.Steps },
			preset: func(p Preset) any { return int64(p.Steps) },
			doc:    "optimizer steps"},
		{key: "batch", is: from(1, 1<<20),
			at:     func(c *Config) any { return &c.Train.Batch },
			preset: func(p Preset) any { return int64(p.Batch) },
			doc:    "sequences per micro-batch"},
		{key: "accumulate", is: from(1, 1<<20), def: int64(1),
			at:     func(c *Config) any { return &c.Train.Accumulate },
			preset: func(p Preset) any { return int64(p.Accumulate) },
			doc:    "micro-batches whose gradients make one step"},
		{key: "clip", kind: number, is: between(0, 1e9), def: 1.0,
			at:  func(c *Config) any { return &c.Train.Clip },
			doc: "largest global norm of the gradient; 0: no clipping"},
		{key: "weight_decay", kind: number, is: between(0, 1000), def: 0.1,
			at:  func(c *Config) any { return &c.Train.WeightDecay },
			doc: "decoupled weight decay of the linear layers' matrices; 0: none"},
		{key: "eval_every", is: from(0, most), def: int64(200),
			at:  func(c *Config) any { return &c.Train.EvalEvery },
			doc: "steps between evaluations; 0: only at the end"},
		{key: "eval_batches", is: from(0, most), def: int64(32),
			at:  func(c *Config) any { return &c.Train.EvalBatches },
			doc: "batches of an evaluation during training; 0: the whole validation set"},
		{key: "final_eval_batches", is: from(0, most), def: int64(0),
			at:  func(c *Config) any { return &c.Train.FinalEvalBatches },
			doc: "batches of the evaluation at the end; 0: the whole validation set"},
		{key: "log_every", is: from(1, most), def: int64(10),
			at:  func(c *Config) any { return &c.Train.LogEvery },
			doc: "steps between lines of metrics"},
		{key: "checkpoint_every", is: from(0, most), def: int64(0),
			at:  func(c *Config) any { return &c.Train.CheckpointEvery },
			doc: "steps between checkpoints; 0: only at the end and on signals"},
		{key: "keep", is: from(1, most), def: int64(2),
			at:  func(c *Config) any { return &c.Train.Keep },
			doc: "checkpoints kept, the latest ones"},
		{key: "out", kind: text, is: nonEmpty("that names a directory"),
			derive:  func(d *decoder) any { return defaultOut(d.origin.file) },
			derived: "`runs/NAME`, NAME being the configuration file's without its ending",
			at:      func(c *Config) any { return &c.Train.Out },
			doc:     "run directory"},
		{key: "nan_policy", kind: text, is: oneOf("skip", "stop"), def: "skip",
			at:  func(c *Config) any { return &c.Train.NaNPolicy },
			doc: "what to do at a step whose loss or gradient is not finite: leave the parameters as they are and go on, or end the run"},
		{key: "max_skipped", is: from(0, most), def: int64(10),
			at:  func(c *Config) any { return &c.Train.MaxSkipped },
			doc: "nan_policy skip: steps skipped in all before the run ends; 0: the first one ends it"},
	},
}

var quantizerTable = table{
	name: "quantizer", plugin: true, example: `"quest"`,
	doc:    "The quantizer of weights and activations. Every other key is a parameter of the plugin (`cage plugins show NAME` lists them).",
	absent: "unquantized, unless the table of a role says otherwise",
	fields: pluginFields(nil),
}

var weightsTable = table{
	name: "quantizer.weights", plugin: true, example: `"quest"`,
	doc:    "The quantizer of weights, in place of all that [quantizer] says.",
	absent: "as [quantizer]",
	fields: pluginFields(nil),
}

var activationsTable = table{
	name: "quantizer.activations", plugin: true, example: `"quest"`,
	doc:    "The quantizer of activations, in place of all that [quantizer] says.",
	absent: "as [quantizer]",
	fields: pluginFields(nil),
}

var optimizerTable = table{
	name: "optimizer", plugin: true, example: `"adamw"`,
	doc:    "The optimizer. Every other key is a parameter of the plugin (`cage plugins show NAME` lists them).",
	absent: "AdamW with its defaults",
	fields: pluginFields("adamw"),
}

// pluginFields are the two keys of ours in a plugin's table; without a
// default (nil) the plugin's name is required, and may be "none".
func pluginFields(def any) []field {
	doc, is := `name of the plugin, or a path (with a slash)`, rule{
		words: "that names a plugin",
		ok:    func(v any) bool { return v.(string) != "" && v.(string) != noPlugin },
	}
	if def == nil {
		doc += `; "none": unquantized, and the other keys are ignored`
		is = nonEmpty("that names a plugin")
	}
	return []field{
		{key: "plugin", kind: text, is: is, def: def, doc: doc},
		{key: "sha256", kind: text, is: hash(), def: "",
			doc: "SHA-256 that the plugin's executable must have; empty: any"},
	}
}
