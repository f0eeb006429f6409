package config

import (
	"math"
	"path/filepath"
	"strings"

	"github.com/cage-qat/cage/host/compute/device"
	"github.com/cage-qat/cage/host/model/architecture"
	"github.com/cage-qat/cage/internal/schema"
	"github.com/cage-qat/cage/sdk"
)

// tables lists all tables in the order of [Reference] and [Config.Encode]. Their keys are bound to
// c, except in plugin tables; see pluginTables.
func (c *Config) tables() []table {
	list := []table{
		{keys: []schema.Key{
			{Name: "seed", To: &c.Seed, Is: schema.From(0, math.MaxInt64), Default: 0,
				Doc: "seed of the initial weights, and of the noise of quantizers and of problems without " +
					"data"},
		}},
		{name: "model", keys: append(c.Model.Keys(), c.initKeys()...),
			doc: "The model. A language model (LM) has any sizes, or those of a preset (llama,\n" +
				"olmo2): a preset fixes layers, width, heads and hidden, and gives defaults for the\n" +
				"rest. A problem without data is a quadratic, f(x) = ½·xᵀAx − bᵀx with A = UΛUᵀ and b =\n" +
				"Ax*, whose only parameter x is quantized; or the toy, f(x) = ½(x − ½)² for a number x. A\n" +
				"key that does not belong to the chosen kind is an error; keys that name none are for LM."},
		{name: adaptersTable, models: architecture.Languages, keys: c.Adapters.Keys(),
			absent: "all parameters are trained",
			doc: "Low-rank adapters: the weights of the model in model.init stay as they are, and two\n" +
				"small factors A and B are trained for each target, W = W₀ + (alpha/rank)·B·A. W is\n" +
				"computed before its quantizer. Checkpoints hold the factors alone."},
		{name: "data", models: architecture.Languages, keys: c.Data.keys(),
			doc: "Files made by `cage data prepare`, for language models; problems without data have no\n" +
				"such table. Relative paths are relative to the working directory."},
		mixtureTable(&Source{}),
		{name: "train", keys: c.trainKeys(),
			doc: "The training loop. A step of a language model processes batch × accumulate sequences."},
		c.Train.Distillation.table(),
		{name: "schedule", keys: c.Schedule.Keys(), doc: "The learning rate over the run."},
		{name: "method", keys: c.Method.Keys(c.Quantizer.quantizesWeights),
			doc: "How training treats the quantization of weights, beyond the straight-through\n" +
				"estimator: the CAGE correction; LOTION, which trains in full precision on a loss smoothed\n" +
				"by randomized rounding, and quantizes only for evaluation; OsciReset, which resets\n" +
				"oscillating weights to their grid; or PARQ, which hardens weights gradually. A key of\n" +
				"another method than the chosen one is an error."},
	}
	return append(append(list, c.pluginTables()...),
		table{name: "diagnostics", keys: c.Diagnostics.Keys(),
			doc: "Samples of the codes and residuals of quantized weights. Each line of metrics at a\n" +
				"sample reports how often codes change, how long they stay the same and whether residuals\n" +
				"add up: the assumptions behind the schedule of λ. They do not affect training."},
		table{name: "device", keys: c.Device.keys(), doc: "The device, and how it computes."})
}

func (d *Data) keys() []schema.Key {
	return []schema.Key{
		{Name: "kind", To: &d.Kind, Is: schema.OneOf(KindText, KindChat), Default: KindText,
			Doc: "text: token files; chat: conversations, made by `cage data prepare --kind chat`, of " +
				"which the assistant's messages are learned"},
		{Name: "train", To: &d.Train, Is: schema.Paths("that name token files"),
			Optional: "required, unless there is a mixture",
			Doc: "token file to train on; several files, or a pattern such as `data/web/train-*.tokens`, " +
				"are read one after another"},
		{Name: "validation", To: &d.Validation, Is: schema.NonEmpty("that names a token file"),
			Doc: "token file to evaluate on"},
		{Name: "tokenizer", To: &d.Tokenizer, Default: "",
			Is:  schema.Anything("that names a tokenizer.json, or empty"),
			Doc: "path of a tokenizer.json; empty: the path recorded in the token file"},
		{Name: "tokenizer_mismatch", To: &d.Mismatch, Default: mismatchRefuse,
			Is: schema.OneOf(mismatchRefuse, MismatchAllow),
			Doc: "what to do if the tokenizer of the data neither is nor extends that of the model in " +
				"model.init or of the teacher; refuse: the run does not start; allow: it starts with the " +
				"data's tokenizer, although its token ids mean other tokens"},
		{Name: "documents", To: &d.Documents, Is: schema.OneOf(documentsJoined, documentsSeparate),
			Default: documentsJoined,
			Doc: "joined: attention and predictions cross the borders of documents, as in the QuEST and " +
				"CAGE papers; separate: they stay within each document, as always in conversations"},
		{Name: "packing", To: &d.Packing, Is: schema.OneOf(defaultPacking, "none"),
			Default: defaultPacking,
			Doc: "kind = \"chat\": how conversations are packed into sequences; first_fit: each into the " +
				"first sequence with enough free positions; none: one per sequence"},
		{Name: "epochs", To: &d.Epochs, Is: schema.From(1, 1<<20), Default: 1,
			Doc: "kind = \"chat\": number of times that each conversation is used"},
		{Name: "seed", To: &d.Seed, Is: schema.From(0, math.MaxInt64), Default: 1337,
			Doc: "seed of the order of the sequences; each epoch has its own order of conversations"},
		{Name: "train_sha256", To: &d.TrainSHA256, Is: schema.Hash(), Default: "",
			Doc: "required SHA-256 of the training tokens: the hash in the header of the file or, for " +
				"several files, in the run.toml of a run with them; empty: any"},
		{Name: "validation_sha256", To: &d.ValidationSHA256, Is: schema.Hash(), Default: "",
			Doc: "the same for the validation tokens"},
	}
}

func mixtureTable(s *Source) table {
	return table{name: "data.mixture", list: true, sample: mixtureSample,
		models: architecture.Languages,
		doc: "Instead of data.train: token files, all made with the same tokenizer, that are sampled\n" +
			"by weight. After any number of sequences each file has had its share, to within a few\n" +
			"sequences. When a file has been read once, its next epoch begins in a new order,\n" +
			"independent of the other files; the summary of a run has the number of epochs.",
		keys: []schema.Key{
			{Name: "path", To: &s.Path, Is: schema.NonEmpty("that names a token file"),
				Doc: "token file, or a pattern for several that are read as one"},
			{Name: "weight", To: &s.Weight, Is: schema.Above(0, 1e6),
				Doc: "share of the tokens, relative to the other weights"},
		}}
}

const mixtureSample = `[data]
mixture = [{path = "web/train-*.tokens", weight = 0.8}, {path = "code/train.tokens", weight = 0.2}]
validation = "web/val.tokens"
`

func (d *Device) keys() []schema.Key {
	languages, onOff := architecture.Languages, schema.OneOf("off", "on")
	return []schema.Key{
		{Name: "kind", To: &d.Kind, Is: schema.OneOf(device.CPU, device.CUDA), Default: device.CPU,
			Doc: "device"},
		{Name: "count", To: &d.Count, Is: schema.From(1, 1024), For: languages, Default: 1,
			Doc: "cuda only: number of GPUs, which divide each micro-batch equally; with " +
				"`cage train --processes` the total of all processes"},
		{Name: "shard", To: &d.Shard, For: languages, Default: device.ShardNone,
			Is: schema.OneOf(device.ShardNone, device.ShardStates, device.ShardGradients, device.ShardFull),
			Doc: "the tensors that are sharded by rows across GPUs; states: optimizer states and mean " +
				"gradients; gradients: also sums of gradients over micro-batches; full: also parameters and " +
				"their quantized values, which each block gathers (use train.recompute, so that they are " +
				"not kept); none: each GPU holds everything"},
		{Name: "precision", To: &d.Precision, Is: schema.OneOf(device.Float32, device.BFloat16),
			Default: device.Float32,
			Doc: "type of the operands of the model's matrix products, which accumulate in float32. " +
				"Parameters, optimizer states, quantizers and losses are float32. On the CPU, bfloat16 is " +
				"faster if the processor multiplies it: AMD since Zen 4, Intel with AMX"},
		{Name: "tf32", To: &d.TF32, Is: onOff, Default: "off",
			Doc: "cuda only: float32 products, also in quantizers and optimizers, round operands to 10 " +
				"mantissa bits. Faster; Muon can err by a third"},
		{Name: "attention", To: &d.Attention, Default: device.AutoAttention,
			Is: schema.OneOf(device.AutoAttention, device.FusedAttention, device.PlainAttention),
			Doc: "how attention is computed, on GPUs in bfloat16; fused: as one operation (cuDNN's on " +
				"GPUs) that does not store the attention weights; plain: as products and a softmax; auto: " +
				"fused if a trial run finds it correct"},
		{Name: "kernels", To: &d.Kernels, Default: device.AutoKernels,
			Is: schema.OneOf(device.AutoKernels, device.FusedKernels, device.GraphKernels),
			Doc: "cuda only: how the programs of quantizers are computed; fused: those that compute rows " +
				"as one kernel per pass, with activations and their gradients in bfloat16; graph: as " +
				"operations, in float32; auto: with precision bfloat16 fused, for each kind of kernel that " +
				"a trial run finds correct"},
		{Name: "products", To: &d.Products, Default: device.FloatProducts,
			Is: schema.OneOf(device.FloatProducts, device.IntegerProducts),
			Doc: "how quantized activations and weights are multiplied in the forward pass; integer: " +
				"their 8-bit codes, with exact 32-bit sums, if both have one scale per row; float: their " +
				"values, in device.precision"},
		{Name: "allocator", To: &d.Allocator, Is: schema.OneOf(device.Allocators()...),
			Default: device.DefaultAllocator,
			Doc: "cuda only: XLA's allocator of GPU memory; bfc: divides large pieces; cuda_async: CUDA's " +
				"pool; platform: separate allocations, which are slow; default: XLA's choice"},
		{Name: "preallocate", To: &d.Preallocate, Is: onOff, Default: "off",
			Doc: "cuda only: whether to allocate device.memory_fraction of the memory at the start, " +
				"which avoids fragmentation"},
		{Name: "memory_fraction", To: &d.MemoryFraction, Is: schema.Between(0, 1), Default: 0.0,
			Doc: "cuda only: share of a GPU's memory that XLA may allocate; 0: its default, three quarters"},
		{Name: "cache", To: &d.Cache, Is: schema.Anything("that names a directory, or empty"),
			Default: "",
			Doc:     "cuda only: directory for XLA's choices of the fastest kernels; empty: none"},
		{Name: "timeout_minutes", To: &d.TimeoutMinutes, Is: schema.Between(0, 1e6), Default: 30.0,
			Doc: "cuda only: time limit of one execution (a step, without its compilation) or copy on a " +
				"GPU. A run that exceeds it ends with an error; 0: no limit"},
		{Name: "threads", To: &d.Threads, Is: schema.From(0, 4096), Default: 0,
			Doc: "CPU threads; 0: all cores"},
		{Name: "peak_tflops", To: &d.PeakTFLOPS, Is: schema.Between(0, 1e9), Default: 0.0,
			Doc: "peak performance of the device, or of all GPUs together, in 10¹² floating-point " +
				"operations per second. Records then have the share that is used (mfu); 0: unknown"},
	}
}

func (c *Config) trainKeys() []schema.Key {
	t, languages, onOff := &c.Train, architecture.Languages, schema.OneOf("on", "off")
	counts := schema.From(0, schema.Most)
	return []schema.Key{
		{Name: "steps", To: &t.Steps, Is: counts,
			Doc: "optimizer steps; with conversations, if left out, as many as data.epochs gives; 0: " +
				"none, in runs made by `cage import` and `cage quantize`, which have no [schedule], and " +
				"[data] only for evaluation"},
		{Name: "batch", To: &t.Batch, Is: schema.From(1, 1<<20), For: languages,
			Doc: "sequences per micro-batch"},
		{Name: "accumulate", To: &t.Accumulate, Is: schema.From(1, 1<<20), Default: 1,
			Doc: "micro-batches per step, whose gradients are accumulated"},
		{Name: "loss_mean", To: &t.LossMean, For: languages,
			Is: schema.OneOf("token", MeanOfMicroBatches), Default: "token",
			Doc: "how the loss of a step is averaged if micro-batches have different numbers of targets " +
				"(conversations, separate documents); token: over all targets of the step; micro_batch: " +
				"over the means of the micro-batches, as in open-instruct"},
		{Name: "recompute", To: &t.Recompute, For: languages, Default: architecture.RecomputeNone,
			Is: schema.OneOf(architecture.RecomputeNone, architecture.RecomputeAttention,
				architecture.RecomputeBlocks, RecomputeAuto),
			Doc: "gradient checkpointing: the part of the forward pass that the backward pass recomputes, " +
				"which takes less memory and more time; attention: queries, keys, values and scores of each " +
				"layer; blocks: everything inside each transformer block; auto: the least of these with " +
				"which memory suffices, as estimated on the CPU, or as XLA reports for a GPU"},
		{Name: "memory_check", To: &t.MemoryCheck, Is: onOff, Default: "on",
			Doc: "whether to refuse a run that needs more memory than there is, by the estimate that " +
				"`cage train --estimate` prints, or on a GPU by what XLA reports of the compiled step"},
		{Name: "clip", To: &t.Clip, Is: schema.Between(0, 1e9),
			Derive:  func() any { return either(c.Model.Language(), 1.0, 0.0) },
			Derived: "`1`; quadratic, toy: `0`",
			Doc:     "largest global norm of the gradient; 0: no clipping"},
		{Name: "weight_decay", To: &t.WeightDecay, For: languages,
			Is: schema.Between(0, 1000), Default: 0.1,
			Doc: "decoupled weight decay of the matrices of linear layers; 0: none"},
		{Name: "decay", To: &t.Decay, Is: schema.OneOf("first", DecayLast), Default: "first",
			Doc: "when weights decay in a step; first: before the optimizer's update, as in Algorithm 1 " +
				"of the CAGE paper and in AdamW; last: after it, as in the official SOAP"},
		{Name: "rotations", To: &t.Rotations, For: languages,
			Is: schema.OneOf("half", "full"), Default: "half",
			Doc: "how activations and weights are multiplied whose quantizers apply the same rotation; " +
				"half: as they are rotated, if that takes fewer rotations; full: both rotated back first. " +
				"The results are equal up to rounding"},
		{Name: "requantize", To: &t.Requantize, Is: onOff, For: languages, Default: "on",
			Doc: "what [quantizer.backward] quantizes; on: the operands of the forward product, Q(x) and " +
				"Q(W), once more, so that training stores one copy of each; off: x and W themselves, along " +
				"the axes of the backward pass, as in NVIDIA's recipe for NVFP4"},
		{Name: "average", To: &t.Average, Is: schema.OneOf(averageOff, averageEMA, averageUniform),
			Default: averageOff,
			Doc: "the weights of the model in evaluations, samples and exports; off: those after the last " +
				"step; ema: their exponential moving average over the steps; uniform: their mean. Q is " +
				"applied to the average. Trained parameters of quantizers are averaged, too, unless they are " +
				"constrained to a set. Training itself uses the weights without averaging. Needs the memory " +
				"of one float32 copy of the weights, and a second one during evaluations. Not with an " +
				"optimizer that has its own average (schedule-free)"},
		{Name: "average_decay", To: &t.AverageDecay, Is: schema.Below(0, 1), Default: defaultAverageDecay,
			Doc: "ema: share of the average that remains after a step"},
		{Name: "average_from", To: &t.AverageFrom, Is: schema.Between(0, schema.Most),
			Derive:  func() any { return either(t.Average == averageUniform, 0.8, 0.0) },
			Derived: "`0`; uniform: `0.8`",
			Doc: "start of the average: a fraction of the steps if below 1, otherwise the number of a " +
				"step. Until then, the average is the weights themselves"},
		{Name: "eval_every", To: &t.EvalEvery, Is: counts, Default: 200,
			Doc: "steps between evaluations; 0: only at the end"},
		{Name: "eval_batches", To: &t.EvalBatches, Is: counts, For: languages, Default: 32,
			Doc: "batches of an evaluation during training; 0: the whole validation set"},
		{Name: "final_eval_batches", To: &t.FinalEvalBatches, Is: counts, For: languages, Default: 0,
			Doc: "batches of the final validation loss in the summary; 0: the whole validation set. The " +
				"last point of the evaluation curve uses eval_batches, like the others"},
		{Name: "log_every", To: &t.LogEvery, Is: schema.From(1, schema.Most), Default: 10,
			Doc: "steps between lines of metrics"},
		{Name: "trajectory_every", To: &t.TrajectoryEvery, For: architecture.Problems,
			Is: counts, Default: 10,
			Doc: "steps between lines of trajectory.jsonl, which contain x; 0: none"},

		{Name: "checkpoint_every", To: &t.CheckpointEvery, Is: counts, Default: 0,
			Doc: "steps between checkpoints; 0: none by steps. A checkpoint is always saved when the run " +
				"ends: at its last step, by a signal, or by an error after which the state is consistent"},
		{Name: "checkpoint_minutes", To: &t.CheckpointMinutes, Is: schema.Between(0, 1e6),
			Derive:  func() any { return either(t.CheckpointEvery > 0, 0.0, 10.0) },
			Derived: "`10`; with `checkpoint_every`: `0`",
			Doc: "minutes between checkpoints; 0: none by time. By default, a run loses at most these " +
				"minutes when the machine stops, and a run of seconds saves only its last state. Checkpoints " +
				"do not affect the result"},
		{Name: "keep", To: &t.Keep, Is: schema.From(1, schema.Most), Default: 2,
			Doc: "number of checkpoints kept: the latest ones, and always the latest one that is finite"},
		{Name: "out", To: &t.Out, Is: schema.NonEmpty("that names a directory"),
			Derive: func() any {
				name := strings.TrimSuffix(filepath.Base(c.places.File()), filepath.Ext(c.places.File()))
				if name == "" || name == "." || name == string(filepath.Separator) {
					name = "run"
				}
				return filepath.Join("runs", name)
			},
			Derived: "`runs/NAME`, NAME being the configuration file's name without its extension",
			Doc:     "run directory"},
		{Name: "nan_policy", To: &t.NaNPolicy, Is: schema.OneOf("skip", "stop"), Default: "skip",
			Doc: "what to do at a step whose loss or gradient is not finite; skip: continue with " +
				"unchanged parameters, if finite; stop: end the run"},
		{Name: "max_skipped", To: &t.MaxSkipped, Is: counts, Default: 10,
			Doc: "nan_policy = \"skip\": total number of skipped steps after which the next one ends the " +
				"run"},
		{Name: "tensorboard", To: &t.TensorBoard, Default: false,
			Doc: "true: records are also written as event files, to tensorboard/ in the run directory, " +
				"for TensorBoard and Weights & Biases"},

		{Name: "samples", To: &t.Samples, Is: schema.Patterns(), For: languages, Optional: "none",
			Doc: "prompts that the model continues, with its quantizers, at each evaluation and at the " +
				"end; the texts are written to samples.jsonl in the run directory, for `cage serve` and " +
				"`cage runs show`. They do not affect training"},
		{Name: "sample_tokens", To: &t.SampleTokens, For: languages,
			Is: schema.From(1, 1<<16), Default: 64,
			Doc: "largest number of tokens in a text of train.samples"},
		{Name: "sample_temperature", To: &t.SampleTemperature, Is: schema.Between(0, 100), For: languages,
			Default: 0.7,
			Doc: "temperature of the texts of train.samples, whose random numbers depend only on seed; 0: " +
				"always the most likely token"},
	}
}

func either(condition bool, yes, no any) any {
	if condition {
		return yes
	}
	return no
}

const (
	distillationTable = "train.distillation"
	teacherKey        = distillationTable + ".teacher"
)

func (d *Distillation) table() table {
	return table{name: distillationTable, models: architecture.Languages, sample: distillationSample,
		absent: "there is no teacher",
		doc: "The model learns the predictions of a teacher, in addition to the tokens or instead of\n" +
			"them. The teacher is not quantized, and its weights do not change. The loss is the\n" +
			"generalized Jensen-Shannon divergence of the predictions P of the teacher and Q of the\n" +
			"model: β·KL(P‖M) + (1−β)·KL(Q‖M) with M = βP + (1−β)Q. It is averaged over the same tokens\n" +
			"as the cross-entropy. Validation losses are always cross-entropies.",
		keys: []schema.Key{
			{Name: "teacher", To: &d.Teacher, Is: schema.NonEmpty(`that is "initial" or names a directory`),
				Optional: "required in the table",
				Doc: "initial: the initial model, of `model.init`; or the directory of a Hugging Face " +
					"checkpoint or of a run (its newest checkpoint is used), with the same vocabulary"},
			{Name: "beta", To: &d.Beta, Is: schema.Between(0, 1), Default: 0.5,
				Doc: "β; 0.5: the Jensen-Shannon divergence; 0: KL(P‖Q) and 1: KL(Q‖P), the limits of the " +
					"loss divided by β or 1 − β"},
			{Name: "temperature", To: &d.Temperature, Is: schema.Above(0, 1000), Default: 1.0,
				Doc: "divisor of the logits of both models"},
			{Name: "weight", To: &d.Weight, Is: schema.Above(0, 1), Default: 1.0,
				Doc: "share of the divergence in the loss; the rest is cross-entropy"},
			{Name: "squared", To: &d.Squared, Default: false,
				Doc: "true: the divergence is multiplied by the square of the temperature, as in NVIDIA's " +
					"QAD code for Hugging Face models"},
		}}
}

const adaptersTable = "adapters"

const distillationSample = `[train.distillation]         # 4 bits learn what full precision predicts
teacher = "models/Llama-3.2-3B-Instruct"
beta = 0.5
`

const aboutParams = "Every other key is a parameter of the plugin (see `cage plugins show NAME`)."

// noPlugin is the plugin name with which a quantizer table leaves its role unquantized.
const noPlugin = "none"

const defaultOptimizer = "adamw"

var tensorRoles = []string{string(sdk.TensorMatrix), string(sdk.TensorVector),
	string(sdk.TensorEmbedding), string(sdk.TensorHead)}

// pluginTables returns one sample of each table that configures a plugin. It is bound to a new
// plugin, override or group, because a configuration may have any number of them. Functions such as
// quantizerTable bind a table to a given plugin.
func (c *Config) pluginTables() []table {
	list := []table{quantizerTable(&Plugin{}),
		roleTable(RoleWeights, &Plugin{}), roleTable(RoleActivations, &Plugin{})}
	for _, role := range ownRoles {
		list = append(list, roleTable(role, &Plugin{}))
	}
	return append(list, overrideTable(&Override{}, &Plugin{}),
		c.Optimizer.table(&Plugin{}), c.Optimizer.restTable(&Plugin{}), groupTable(&Group{}, &Plugin{}))
}

func quantizerTable(p *Plugin) table {
	return table{name: "quantizer", plugin: p, example: `"quest"`, keys: quantizerKeys(p),
		doc:    "The quantizer of weights and activations. " + aboutParams,
		absent: "nothing is quantized, unless the table of a role or an override says otherwise"}
}

func roleTable(role string, p *Plugin) table {
	t := table{name: "quantizer." + role, plugin: p, keys: quantizerKeys(p), example: `"mxfp4"`,
		models: architecture.Languages}
	switch role {
	case RoleKeys:
		t.example = `"kivi"`
		t.doc = "The quantizer of the keys of attention, as a cache stores them: after normalization\n" +
			"and rotation, before the product with the queries. A row contains all heads of one token.\n" +
			"Generation processes tokens one by one, so it fails with a quantizer that combines several\n" +
			"tokens."
		t.absent = "keys are not quantized"
	case RoleValues:
		t.example = `"kivi"`
		t.doc = "The quantizer of the values of attention, in the same way."
		t.absent = "values are not quantized"
	case RoleQueries:
		t.doc = "The quantizer of the queries of attention, after rotation and before the factor\n" +
			"1/√size. Attention probabilities cannot be quantized: they exist only inside fused attention."
		t.absent = "queries are not quantized"
	case RoleHead:
		t.doc = "The quantizer of the output head: of its weight, named head, or embedding if they\n" +
			"are tied, and of its input, head.input. A tied embedding is quantized as well. An override\n" +
			"with role = \"head\" and plugin = \"none\" leaves one of them unquantized. The products of\n" +
			"the head's backward pass are not quantized."
		t.absent = "the head is not quantized"
	case RoleGradients:
		t.doc = "The quantizer of dy, the gradient of a linear layer's output, in the two products of\n" +
			"its backward pass: dx = dy·W and dW = dyᵀ·x. In each, it quantizes along the axis that the\n" +
			"product sums over: rows of dy contain the outputs of one token, rows of dyᵀ one output of\n" +
			"all tokens of a micro-batch. It may have no trained parameters. Evaluations do not use it."
		t.absent = "gradients are not quantized"
	case RoleBackward:
		t.doc = "The quantizer of the other operands of these two products, Wᵀ and xᵀ, along the axes\n" +
			"that they sum over. It quantizes the operands of the forward product, which may be\n" +
			"quantized and rotated already; or x and W themselves, with train.requantize = \"off\". If\n" +
			"both tables name a plugin that rotates at random, both operands of a product are rotated in\n" +
			"the same way."
		t.absent = "the products of the backward pass use the operands of the forward product unchanged"
	default:
		t.example, t.models, t.absent = `"quest"`, nil, "as [quantizer]"
		t.doc = "The quantizer of " + role + ", instead of the one in [quantizer]."
	}
	return t
}

func overrideTable(o *Override, p *Plugin) table {
	roles := append([]string{RoleWeights, RoleActivations, roleBoth}, ownRoles...)
	return table{name: "quantizer.overrides", list: true, plugin: p, example: `"absmax"`,
		sample: overrideSample,
		doc: "Another quantizer, or none, for some weights and activations, instead of those of the\n" +
			"tables above. At least one of match and layers is required. The last matching override\n" +
			"wins. " + aboutParams,
		keys: append([]schema.Key{
			{Name: "match", To: &o.Match, Is: schema.Patterns(), Optional: "all",
				Doc: "names of parameters (weights) and sites (activations); `*` matches any number of " +
					"characters"},
			{Name: "layers", To: &o.Layers, Is: schema.From(-4096, 4095),
				Optional: "all, and what is in none",
				Doc:      "indices of transformer blocks: 0 is the first, -1 the last, -2 the one before"},
			{Name: "role", To: &o.Role, Is: schema.OneOf(append(roles, roleAll)...), Default: roleBoth,
				Doc: "the role of the tensors, as in the tables of these names; both: weights and " +
					"activations; gradients: by the names of the weights; all: all of these"},
		}, quantizerKeys(p)...)}
}

const overrideSample = `[quantizer]
plugin = "quest"
bits = 4

[[quantizer.overrides]]      # the first block in 8 bits
match = "layers.0.*"
plugin = "quest"
bits = 8

[[quantizer.overrides]]      # the input of the last product of each block in full precision
match = "*.mlp.down.input"
role = "activations"
plugin = "none"

[[quantizer.overrides]]      # the first and the last block in full precision
layers = [0, -1]
plugin = "none"
`

func (o *Optimizer) table(p *Plugin) table {
	return table{name: "optimizer", plugin: p, example: `"adamw"`,
		keys:   optimizerKeys(p, &o.RefreshDelay),
		doc:    "The optimizer. " + aboutParams,
		absent: "AdamW with its defaults"}
}

func (o *Optimizer) restTable(p *Plugin) table {
	return table{name: "optimizer.rest", plugin: p, example: `"adamw"`,
		keys: optimizerKeys(p, &o.RestRefreshDelay),
		doc: "The optimizer of the tensors that [optimizer] does not accept, such as embedding, head\n" +
			"and vectors for Muon. `rest = \"sgd\"` in [optimizer] is short for a table of that plugin.\n" +
			aboutParams,
		absent: "AdamW with its defaults"}
}

func groupTable(g *Group, p *Plugin) table {
	return table{name: "optimizer.groups", list: true, plugin: p, example: `"adamw"`,
		sample: groupSample,
		doc: "Groups of parameters with their own optimizer, rate or decay. A group contains the\n" +
			"parameters that match both its match and its roles, at least one of which is required. The\n" +
			"first matching group wins; parameters in no group use [optimizer]. Every other key is a\n" +
			"parameter of the group's plugin.",
		keys: append([]schema.Key{
			{Name: "match", To: &g.Match, Is: schema.Patterns(), Default: []string{"*"},
				Doc: "names of parameters; `*` matches any number of characters"},
			{Name: "roles", To: &g.Roles, Is: schema.OneOf(tensorRoles...), Default: tensorRoles,
				Doc: "roles of parameters: weights of linear layers in blocks, norm weights and biases, " +
					"token embedding, output head"},
			{Name: "rate", To: &g.Rate, Is: schema.Between(0, 1e6), Default: 1.0,
				Doc: "factor of the learning rate; 0 freezes the parameters: no update, weight decay or " +
					"correction changes them. Their gradients still count in the norm that train.clip limits. " +
					"Trained parameters of quantizers have the names quantizer.*"},
			{Name: "weight_decay", To: &g.WeightDecay, Is: schema.Between(0, 1000),
				Optional: "train.weight_decay for those that the model decays",
				Doc:      "decoupled weight decay of all tensors of the group"},
			refreshDelay(schema.Key{To: &g.RefreshDelay,
				Optional: "0 with a plugin of its own, else as without the group"}),
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

// anOptimizer accepts the name of an optimizer, but not "none", because training needs one.
var anOptimizer = schema.NonEmpty("that names a plugin", noPlugin)

// pluginKeys returns the keys plugin and sha256, which all plugin tables have. name holds the range
// and default of the key plugin.
func pluginKeys(p *Plugin, name schema.Key) []schema.Key {
	name.Name, name.To = "plugin", &p.Name
	name.Doc = "name of the plugin, or a path (with a slash)" + name.Doc
	return []schema.Key{name, {Name: "sha256", To: &p.SHA256, Is: schema.Hash(), Default: "",
		Doc: "SHA-256 that the plugin's executable must have; empty: any"}}
}

func quantizerKeys(p *Plugin) []schema.Key {
	return pluginKeys(p, schema.Key{Is: schema.NonEmpty("that names a plugin"),
		Doc: `; "none": unquantized, and the parameters are ignored`})
}

func optimizerKeys(p *Plugin, delay *int) []schema.Key {
	keys := pluginKeys(p, schema.Key{Is: anOptimizer, Default: defaultOptimizer})
	return append(keys, refreshDelay(schema.Key{To: delay, Default: 0}))
}

func refreshDelay(k schema.Key) schema.Key {
	k.Name, k.Is = "refresh_delay", schema.From(0, 1_000_000)
	k.Doc = "number of updates, less than between refreshes, after which new preconditioners (SOAP, " +
		"Shampoo) take effect; the first ones take effect at once. The host's processors compute them " +
		"while training continues on the GPU; 0: training waits"
	return k
}
