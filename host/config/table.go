package config

import "math"

// most bounds counts that have no natural bound.
const most = 1_000_000_000

// noPlugin in place of a quantizer's name leaves the role unquantized.
const noPlugin = "none"

// schema lists every table in the order of [Reference] and [Config.Encode].
func schema() []table {
	return []table{
		topTable, modelTable, dataTable, trainTable, scheduleTable, methodTable,
		quantizerTable, weightsTable, activationsTable, overridesTable,
		optimizerTable, restTable, groupsTable, diagnosticsTable, deviceTable,
	}
}

var topTable = table{
	fields: []field{
		{key: "seed", is: from(0, math.MaxInt64), def: int64(0),
			at:  func(c *Config) any { return &c.Seed },
			doc: "seed of the model's initialisation, and of the noise of a problem without data"},
	},
}

var dataTable = table{
	name:   "data",
	models: languages,
	doc: "Token files made by `cage data prepare`, for a model that learns from text; others have no such table. Relative\n" +
		"paths are relative to the working directory.",
	fields: []field{
		{key: "train", kind: text, is: nonEmpty("that names a token file"),
			at:  func(c *Config) any { return &c.Data.Train },
			doc: "token file to train on"},
		{key: "validation", kind: text, is: nonEmpty("that names a token file"),
			at:  func(c *Config) any { return &c.Data.Validation },
			doc: "token file to evaluate on"},
		{key: "tokenizer", kind: text, is: anything("that names a tokenizer.json, or empty"), def: "",
			at:  func(c *Config) any { return &c.Data.Tokenizer },
			doc: "path of a tokenizer.json; empty: as recorded in the token file"},
		{key: "seed", is: from(0, math.MaxInt64), def: int64(1337),
			at:  func(c *Config) any { return &c.Data.Seed },
			doc: "seed of the order in which sequences are visited"},
		{key: "train_sha256", kind: text, is: hash(), def: "",
			at:  func(c *Config) any { return &c.Data.TrainSHA256 },
			doc: "SHA-256 of the training tokens, as the header of the token file records it; empty: any"},
		{key: "validation_sha256", kind: text, is: hash(), def: "",
			at:  func(c *Config) any { return &c.Data.ValidationSHA256 },
			doc: "the same for the validation tokens"},
	},
}

var scheduleTable = table{
	name: "schedule",
	doc:  "The learning rate over the run.",
	fields: []field{
		{key: "kind", kind: text, is: oneOf("onecycle_cos", "linear_warmup_cosine", "wsd", "constant"), def: "onecycle_cos",
			at:  func(c *Config) any { return &c.Schedule.Kind },
			doc: "shape"},
		{key: "rate", kind: number, is: above(0, 1000),
			at:     func(c *Config) any { return &c.Schedule.Rate },
			preset: func(p Preset) any { return p.Rate },
			doc:    "peak learning rate"},
		{key: "warmup", kind: number, is: between(0, most), def: 0.1,
			at:  func(c *Config) any { return &c.Schedule.Warmup },
			doc: "warm-up: a fraction of the steps when below 1, else a whole number of steps"},
		{key: "floor", kind: number, is: between(0, 1), def: 0.1,
			at:  func(c *Config) any { return &c.Schedule.Floor },
			doc: "rate at the end, as a fraction of rate"},
		{key: "decay", kind: number, is: between(0, 1), def: 0.1,
			at:  func(c *Config) any { return &c.Schedule.Decay },
			doc: "wsd only: fraction of the steps in the decay phase"},
	},
}

var deviceTable = table{
	name: "device",
	doc:  "Where the run computes.",
	fields: []field{
		{key: "kind", kind: text, is: oneOf("cpu", "cuda"), def: "cpu",
			at:  func(c *Config) any { return &c.Device.Kind },
			doc: "device"},
		{key: "count", models: languages, is: from(1, 1024), def: int64(1),
			at:  func(c *Config) any { return &c.Device.Count },
			doc: "GPUs that share each micro-batch in equal parts and keep equal parameters; cuda only"},
		{key: "precision", kind: text, is: oneOf("float32", "bfloat16"), def: "float32",
			at:  func(c *Config) any { return &c.Device.Precision },
			doc: "type of the model's matrix products, which add up in float32; bfloat16 with cuda only. Parameters, optimizer states, quantizers and losses stay float32"},
		{key: "tf32", kind: text, is: oneOf("off", "on"), def: "off",
			at:  func(c *Config) any { return &c.Device.TF32 },
			doc: "cuda only: products that are float32, those of quantizers and optimizers among them, round their operands to 10 bits of mantissa. Faster; off is exact"},
		{key: "attention", kind: text, is: oneOf("auto", "fused", "plain"), def: "auto",
			at:  func(c *Config) any { return &c.Device.Attention },
			doc: "bfloat16 only: how attention is computed; fused: as one operation of the device, cuDNN's, which keeps no weights; plain: as products and a softmax; auto: fused where a short trial agrees with plain"},
		{key: "threads", is: from(0, 4096), def: int64(0),
			at:  func(c *Config) any { return &c.Device.Threads },
			doc: "CPU threads; 0: all cores"},
	},
}
