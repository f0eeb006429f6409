package config

import (
	"slices"

	"github.com/cage-qat/cage/host/model/architecture"
	"github.com/cage-qat/cage/internal/schema"
)

func (c *Config) trainKeys() []schema.Key {
	return slices.Concat(c.loopKeys(), c.endingKeys(), c.sampleKeys())
}

// loopKeys are the keys about steps, and about what is recorded of them.
func (c *Config) loopKeys() []schema.Key {
	t := &c.Train
	return []schema.Key{
		{Name: "steps", To: &t.Steps, Is: schema.From(0, schema.Most),
			Doc: "optimizer steps; with conversations, as many as data.epochs gives when it is left out; 0: none, in runs that `cage import` and `cage quantize` make, which have no [schedule], and [data] only to be evaluated on"},
		{Name: "batch", To: &t.Batch, Is: schema.From(1, 1<<20), For: architecture.Languages,
			Doc: "sequences per micro-batch"},
		{Name: "accumulate", To: &t.Accumulate, Is: schema.From(1, 1<<20), Default: 1,
			Doc: "micro-batches whose gradients make one step"},
		{Name: "loss_mean", To: &t.LossMean, Is: schema.OneOf("token", MeanOfMicroBatches), For: architecture.Languages, Default: "token",
			Doc: "what the loss of a step is the mean over, where batches have different numbers of targets (conversations, separate documents): token: all targets of the step; micro_batch: the means of its micro-batches, as in open-instruct, which gives the targets of short answers more weight; without effect where all micro-batches have as many targets (documents that are joined), or a step has one (train.accumulate = 1)"},
		{Name: "recompute", To: &t.Recompute, Is: schema.OneOf("none", RecomputeBlocks), For: architecture.Languages, Default: "none",
			Doc: "what the backward pass computes again instead of keeping it from the forward pass; blocks: what is inside each transformer block (gradient checkpointing). Less memory and more time, for the same bits on the CPU"},
		{Name: "memory_check", To: &t.MemoryCheck, Is: schema.OneOf("on", "off"), Default: "on",
			Doc: "on: before it begins, the run is refused when it needs more memory than there is, by an estimate, which `cage train --estimate` prints; off: it is tried all the same"},
		{Name: "clip", To: &t.Clip, Is: schema.Between(0, 1e9),
			Derive: func() any { return either(c.Model.Language(), 1.0, 0.0) }, Derived: "`1`; quadratic, toy: `0`",
			Doc: "largest global norm of the gradient; 0: no clipping"},
		{Name: "weight_decay", To: &t.WeightDecay, Is: schema.Between(0, 1000), For: architecture.Languages, Default: 0.1,
			Doc: "decoupled weight decay of the linear layers' matrices; 0: none"},
		{Name: "decay", To: &t.Decay, Is: schema.OneOf("first", DecayLast), Default: "first",
			Doc: "when weights decay in a step: first, before the optimizer's update, as in Algorithm 1 of the CAGE paper and in AdamW; " +
				"last, after it, as in the official SOAP, where the paper's variant of the correction takes x − Q(x) before both"},
		{Name: "rotations", To: &t.Rotations, Is: schema.OneOf("half", "full"), For: architecture.Languages, Default: "half",
			Doc: "how to multiply activations and weights that their quantizers rotate alike. half: multiply them rotated, where that takes fewer rotations; " +
				"full: rotate both back first. The results are equal but for rounding"},
		{Name: "eval_every", To: &t.EvalEvery, Is: schema.From(0, schema.Most), Default: 200,
			Doc: "steps between evaluations; 0: only at the end"},
		{Name: "eval_batches", To: &t.EvalBatches, Is: schema.From(0, schema.Most), For: architecture.Languages, Default: 32,
			Doc: "batches of an evaluation during training; 0: the whole validation set"},
		{Name: "final_eval_batches", To: &t.FinalEvalBatches, Is: schema.From(0, schema.Most), For: architecture.Languages, Default: 0,
			Doc: "batches of the final validation loss, that of the summary; 0: the whole validation set. Unless eval_every is 0, the last point of the curve of evaluations uses eval_batches batches, as those before it do"},
		{Name: "log_every", To: &t.LogEvery, Is: schema.From(1, schema.Most), Default: 10,
			Doc: "steps between lines of metrics"},
		{Name: "trajectory_every", To: &t.TrajectoryEvery, Is: schema.From(0, schema.Most), For: architecture.Problems, Default: 10,
			Doc: "steps between lines of trajectory.jsonl, which hold x; 0: none"},
	}
}

// endingKeys are the keys about what is left behind, and about an early end.
func (c *Config) endingKeys() []schema.Key {
	t := &c.Train
	return []schema.Key{
		{Name: "checkpoint_every", To: &t.CheckpointEvery, Is: schema.From(0, schema.Most), Default: 0,
			Doc: "steps between checkpoints; 0: none by steps. One is saved in any case when the run ends: at its last step, by a signal, or by an error after which the state is consistent"},
		{Name: "checkpoint_minutes", To: &t.CheckpointMinutes, Is: schema.Between(0, 1e6),
			Derive: func() any { return either(t.CheckpointEvery > 0, 0.0, 10.0) }, Derived: "`10`; with `checkpoint_every`: `0`",
			Doc: "minutes since the last checkpoint until the next; 0: none by the clock. So a run without any setting of checkpoints loses at most these " +
				"minutes when the machine stops. A default by the clock suits both runs of seconds, which write none, and runs of weeks; when states are saved changes no bit of the result"},
		{Name: "keep", To: &t.Keep, Is: schema.From(1, schema.Most), Default: 2,
			Doc: "checkpoints kept, the latest ones"},
		{Name: "out", To: &t.Out, Is: schema.NonEmpty("that names a directory"),
			Derive: func() any { return defaultOut(c.places.File()) }, Derived: "`runs/NAME`, NAME being the configuration file's without its ending",
			Doc: "run directory"},
		{Name: "nan_policy", To: &t.NaNPolicy, Is: schema.OneOf("skip", "stop"), Default: "skip",
			Doc: "what to do at a step whose loss or gradient is not finite: leave the parameters as they are and go on, or end the run"},
		{Name: "max_skipped", To: &t.MaxSkipped, Is: schema.From(0, schema.Most), Default: 10,
			Doc: "nan_policy skip: steps skipped in all before the run ends; 0: the first one ends it"},
		{Name: "tensorboard", To: &t.TensorBoard, Default: false,
			Doc: "true: the records are also written as event files, to tensorboard/ in the run directory, for TensorBoard and Weights & Biases; `cage runs export` makes them of any run"},
	}
}

// sampleKeys are the keys about texts that the model writes while it is trained.
func (c *Config) sampleKeys() []schema.Key {
	t := &c.Train
	return []schema.Key{
		{Name: "samples", To: &t.Samples, Is: schema.Patterns(), For: architecture.Languages, Optional: "none",
			Doc: "prompts that the model continues, with its quantizers, at each evaluation and at the end; the texts go to samples.jsonl in the run directory, for `cage serve` and `cage runs show`. No bit of the training depends on them"},
		{Name: "sample_tokens", To: &t.SampleTokens, Is: schema.From(1, 1<<16), For: architecture.Languages, Default: 64,
			Doc: "the largest number of tokens of a text of train.samples"},
		{Name: "sample_temperature", To: &t.SampleTemperature, Is: schema.Between(0, 100), For: architecture.Languages, Default: 0.7,
			Doc: "temperature of the texts of train.samples, whose draws depend on seed alone; 0: the likeliest token each time"},
	}
}

func either(condition bool, yes, no any) any {
	if condition {
		return yes
	}
	return no
}
