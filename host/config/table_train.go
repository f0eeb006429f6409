package config

var trainTable = table{
	name: "train",
	doc:  "The loop. A step of a language model sees batch × accumulate sequences.",
	fields: []field{
		{key: "steps", is: from(1, most),
			at:     func(c *Config) any { return &c.Train.Steps },
			preset: func(p Preset) any { return int64(p.Steps) },
			doc:    "optimizer steps"},
		{key: "batch", models: languages, is: from(1, 1<<20),
			at:     func(c *Config) any { return &c.Train.Batch },
			preset: func(p Preset) any { return int64(p.Batch) },
			doc:    "sequences per micro-batch"},
		{key: "accumulate", is: from(1, 1<<20), def: int64(1),
			at:     func(c *Config) any { return &c.Train.Accumulate },
			preset: func(p Preset) any { return int64(p.Accumulate) },
			doc:    "micro-batches whose gradients make one step"},
		{key: "recompute", models: languages, kind: text, is: oneOf("none", RecomputeBlocks), def: "none",
			at:  func(c *Config) any { return &c.Train.Recompute },
			doc: "what the backward pass computes again instead of keeping it from the forward pass; blocks: what is inside each transformer block (gradient checkpointing). Less memory and more time, for the same bits on the CPU"},
		{key: "memory_check", kind: text, is: oneOf("on", "off"), def: "on",
			at:  func(c *Config) any { return &c.Train.MemoryCheck },
			doc: "on: before it begins, the run is refused when it needs more memory than there is, by an estimate; off: it is tried all the same"},
		{key: "clip", kind: number, is: between(0, 1e9),
			derive: func(d *decoder) any {
				if d.cfg.Model.Language() {
					return 1.0
				}
				return 0.0
			},
			derived: "`1`; quadratic, toy: `0`",
			at:      func(c *Config) any { return &c.Train.Clip },
			doc:     "largest global norm of the gradient; 0: no clipping"},
		{key: "weight_decay", models: languages, kind: number, is: between(0, 1000), def: 0.1,
			at:  func(c *Config) any { return &c.Train.WeightDecay },
			doc: "decoupled weight decay of the linear layers' matrices; 0: none"},
		{key: "decay", kind: text, is: oneOf("first", DecayLast), def: "first",
			at: func(c *Config) any { return &c.Train.Decay },
			doc: "when weights decay in a step: first, before the optimizer's update, as in Algorithm 1 of the CAGE paper and in AdamW; " +
				"last, after it, as in the official SOAP, where the paper's variant of the correction takes x − Q(x) before both"},
		{key: "rotations", models: languages, kind: text, is: oneOf("half", "full"), def: "half",
			at: func(c *Config) any { return &c.Train.Rotations },
			doc: "products of activations and weights that their quantizers rotate alike: half leaves both rotated, where fewer rotations are computed that way; " +
				"full rotates both back. Equal but for rounding"},
		{key: "eval_every", is: from(0, most), def: int64(200),
			at:  func(c *Config) any { return &c.Train.EvalEvery },
			doc: "steps between evaluations; 0: only at the end"},
		{key: "eval_batches", models: languages, is: from(0, most), def: int64(32),
			at:  func(c *Config) any { return &c.Train.EvalBatches },
			doc: "batches of an evaluation during training; 0: the whole validation set"},
		{key: "final_eval_batches", models: languages, is: from(0, most), def: int64(0),
			at:  func(c *Config) any { return &c.Train.FinalEvalBatches },
			doc: "batches of the evaluation at the end; 0: the whole validation set"},
		{key: "log_every", is: from(1, most), def: int64(10),
			at:  func(c *Config) any { return &c.Train.LogEvery },
			doc: "steps between lines of metrics"},
		{key: "trajectory_every", models: problems, is: from(0, most), def: int64(10),
			at:  func(c *Config) any { return &c.Train.TrajectoryEvery },
			doc: "steps between lines of trajectory.jsonl, which hold x; 0: none"},
		{key: "checkpoint_every", is: from(0, most), def: int64(0),
			at:  func(c *Config) any { return &c.Train.CheckpointEvery },
			doc: "steps between checkpoints; 0: none by steps. One is saved in any case when the run ends: at its last step, by a signal, or by an error after which the state is whole"},
		{key: "checkpoint_minutes", kind: number, is: between(0, 1e6),
			derive: func(d *decoder) any {
				if d.cfg.Train.CheckpointEvery > 0 {
					return 0.0
				}
				return 10.0
			},
			derived: "`10`; with `checkpoint_every`: `0`",
			at:      func(c *Config) any { return &c.Train.CheckpointMinutes },
			doc: "minutes since the last checkpoint until the next; 0: none by the clock. So a run that says nothing of checkpoints loses at most that " +
				"when the machine stops. By the clock, and not by steps, as that fits runs of seconds, which write none, and of weeks; when states are saved changes no bit of the result"},
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
