package config

import (
	"math"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cage-qat/cage/host/compute/device"
	"github.com/cage-qat/cage/host/model/architecture"
	"github.com/cage-qat/cage/internal/schema"
	"github.com/cage-qat/cage/sdk"
)

// tables lists every table, with its keys bound to c, in the order of [Reference] and
// [Config.Encode]. Tables of plugins are bound to sample values instead: see
// pluginTables.
func (c *Config) tables() []table {
	return append(append([]table{
		{keys: []schema.Key{
			{Name: "seed", To: &c.Seed, Is: schema.From(0, math.MaxInt64), Default: 0,
				Doc: "seed of the model's initialisation, of the noise of quantizers, and of that of a problem without data"},
		}},
		{name: "model", keys: append(c.Model.Keys(), c.initKeys()...),
			doc: "What is trained. A language model (llama, olmo2, qwen3) has free sizes, or those of a preset (llama, olmo2): a preset fixes layers,\n" +
				"width, heads and hidden, and suggests the rest. A problem without data is a quadratic, f(x) = ½·xᵀAx − bᵀx with\n" +
				"A = UΛUᵀ and b = Ax*, of which the one parameter x is quantized; or the toy, f(x) = ½(x − ½)² on the numbers.\n" +
				"A key that does not belong to the chosen kind is an error."},
		{name: "data", models: architecture.Languages, keys: c.Data.keys(),
			doc: "Files made by `cage data prepare`, for a model that learns from text; problems without data have no such table. Relative paths are\n" +
				"relative to the working directory."},
		mixtureTable(&Source{}),
		{name: "train", keys: c.trainKeys(), doc: "The loop. A step of a language model sees batch × accumulate sequences."},
		c.Train.Distillation.table(),
		{name: "schedule", keys: c.Schedule.Keys(), doc: "The learning rate over the run."},
		{name: "method", keys: c.Method.Keys(c.Quantizer.quantizesWeights),
			doc: "What the training does about the quantization of weights, beyond the straight-through estimator: the CAGE\n" +
				"correction; LOTION, which trains in full precision on a loss smoothed by randomized rounding, and quantizes for evaluation\n" +
				"only; OsciReset, which sets weights that oscillate back to their grid; or PARQ, with which they harden gradually. A\n" +
				"key of another method than the named one is an error."},
	}, c.pluginTables()...),
		table{name: "diagnostics", keys: c.Diagnostics.Keys(),
			doc: "Samples of the codes and residuals of quantized weights, from which each line of metrics at a sample says how\n" +
				"often codes change, how long they stay and whether residuals add up: what the schedule of λ rests on. They\n" +
				"change nothing about the training."},
		table{name: "device", keys: c.Device.keys(), doc: "Where the run computes."})
}

func (d *Data) keys() []schema.Key {
	return []schema.Key{
		{Name: "kind", To: &d.Kind, Is: schema.OneOf(KindText, KindChat), Default: KindText,
			Doc: "text: token files; chat: conversations, which `cage data prepare --kind chat` makes, of which the assistant's turns are learned"},
		{Name: "train", To: &d.Train, Is: schema.Paths("that name token files"), Optional: "required, unless there is a mixture",
			Doc: "token file to train on; several, or a pattern such as `data/web/train-*.tokens`, are read one after another"},
		{Name: "validation", To: &d.Validation, Is: schema.NonEmpty("that names a token file"),
			Doc: "token file to evaluate on"},
		{Name: "tokenizer", To: &d.Tokenizer, Is: schema.Anything("that names a tokenizer.json, or empty"), Default: "",
			Doc: "path of a tokenizer.json; empty: as recorded in the token file"},
		{Name: "tokenizer_mismatch", To: &d.Mismatch, Default: mismatchRefuse,
			Is: schema.OneOf(mismatchRefuse, MismatchAllow),
			Doc: "what to do if the data has another tokenizer than the model in model.init, or than the " +
				"teacher; refuse: the run does not begin, unless tokens were only added to the tokenizer; " +
				"allow: it begins, though ids then mean other tokens, and the run has the data's tokenizer"},
		{Name: "documents", To: &d.Documents, Is: schema.OneOf(documentsJoined, documentsSeparate), Default: documentsJoined,
			Doc: "joined: attention and predictions go across the borders of the documents in a sequence, as in the QuEST and CAGE papers; separate: they stay within each, as those of conversations always do"},
		{Name: "packing", To: &d.Packing, Is: schema.OneOf(defaultPacking, "none"), Default: defaultPacking,
			Doc: "kind = \"chat\": how conversations are put into sequences; first_fit: several into one, each into the first with room for it; none: each has its own"},
		{Name: "epochs", To: &d.Epochs, Is: schema.From(1, 1<<20), Default: 1,
			Doc: "kind = \"chat\": how often each conversation comes"},
		{Name: "seed", To: &d.Seed, Is: schema.From(0, math.MaxInt64), Default: 1337,
			Doc: "seed of the order in which sequences are visited; each epoch has its own order of conversations"},
		{Name: "train_sha256", To: &d.TrainSHA256, Is: schema.Hash(), Default: "",
			Doc: "SHA-256 of the training tokens, as the header of the token file records it, or of several files, as a run's run.toml records it; empty: any"},
		{Name: "validation_sha256", To: &d.ValidationSHA256, Is: schema.Hash(), Default: "",
			Doc: "the same for the validation tokens"},
	}
}

func mixtureTable(s *Source) table {
	return table{name: "data.mixture", list: true, models: architecture.Languages, sample: mixtureSample,
		doc: "In place of data.train: token files that are drawn from by weight, all made with the same tokenizer. After any number\n" +
			"of sequences each has had its share, to within a few sequences. A file that has been gone through begins its next\n" +
			"epoch in a new order, whatever the others do; the summary of a run says how many epochs it had.",
		keys: []schema.Key{
			{Name: "path", To: &s.Path, Is: schema.NonEmpty("that names a token file"),
				Doc: "token file, or a pattern for several that are read as one"},
			{Name: "weight", To: &s.Weight, Is: schema.Above(0, 1e6),
				Doc: "share of the tokens, in relation to the other weights"},
		}}
}

const mixtureSample = `[data]
mixture = [{path = "data/web/train-*.tokens", weight = 0.8}, {path = "data/code/train.tokens", weight = 0.2}]
validation = "data/web/val.tokens"
`

func (d *Device) keys() []schema.Key {
	return []schema.Key{
		{Name: "kind", To: &d.Kind, Is: schema.OneOf(device.CPU, device.CUDA), Default: device.CPU,
			Doc: "device"},
		{Name: "count", To: &d.Count, Is: schema.From(1, 1024), For: architecture.Languages, Default: 1,
			Doc: "GPUs that share each micro-batch in equal parts and keep equal parameters; of several processes together, with `cage train --processes`; cuda only"},
		{Name: "shard", To: &d.Shard, Is: schema.OneOf(device.ShardNone, device.ShardStates, device.ShardGradients, device.ShardFull), For: architecture.Languages, Default: device.ShardNone,
			Doc: "what several GPUs divide by rows, in the place of having all of it on each; states: states of optimizers and mean gradients; gradients: also sums of gradients over micro-batches; full: also parameters and their quantized values, which each block gathers when it computes: with train.recompute, so that they are not kept; none: batches only"},
		{Name: "offload", To: &d.Offload, Is: schema.OneOf("none", "states"), Default: "none",
			Doc: "cuda only: has no effect; states: a former experiment"},
		{Name: "precision", To: &d.Precision, Is: schema.OneOf(device.Float32, device.BFloat16), Default: device.Float32,
			Doc: "type of the model's matrix products, which add up in float32. Parameters, optimizer states, quantizers and losses stay float32. On the CPU, bfloat16 is faster where the processor multiplies it (AMD since Zen 4, Intel with AMX), and as fast as float32 elsewhere"},
		{Name: "tf32", To: &d.TF32, Is: schema.OneOf("off", "on"), Default: "off",
			Doc: "cuda only: products that are float32, those of quantizers and optimizers among them, round their operands to 10 bits of mantissa. Faster; off is exact"},
		{Name: "attention", To: &d.Attention, Is: schema.OneOf(device.AutoAttention, device.FusedAttention, device.PlainAttention), Default: device.AutoAttention,
			Doc: "how attention is computed, on GPUs in bfloat16; fused: as one operation, which keeps no weights, on GPUs cuDNN's; plain: as products and a softmax; auto: fused where a trial finds it right"},
		{Name: "kernels", To: &d.Kernels, Is: schema.OneOf(device.AutoKernels, device.FusedKernels, device.GraphKernels), Default: device.AutoKernels,
			Doc: "cuda only: how the programs of quantizers are computed; fused: each that computes rows as one kernel for each pass, with activations and their gradients in bfloat16; graph: as operations, in float32; auto: in bfloat16 fused, for each kind of kernel that a trial finds right. The CPU always computes rows in one pass through its caches"},
		{Name: "products", To: &d.Products, Is: schema.OneOf(device.FloatProducts, device.IntegerProducts, device.FormerBlocks), Default: device.FloatProducts,
			Doc: "how quantized activations and weights are multiplied in the forward pass; integer: by their codes, in 8 bits with exact sums in 32, where both have one scale for each row; float: by their values, in device.precision; fp4: as float, a former experiment"},
		{Name: "allocator", To: &d.Allocator, Is: schema.OneOf(device.Allocators()...), Default: device.DefaultAllocator,
			Doc: "cuda only: how XLA takes memory of the GPU; bfc: in large pieces that it divides; cuda_async: by CUDA's own pool; platform: piece by piece, which is slow; default: its choice"},
		{Name: "preallocate", To: &d.Preallocate, Is: schema.OneOf("off", "on"), Default: "off",
			Doc: "cuda only: takes device.memory_fraction of the memory at once, so that it does not become fragmented; off: as it is needed"},
		{Name: "memory_fraction", To: &d.MemoryFraction, Is: schema.Between(0, 1), Default: 0.0,
			Doc: "cuda only: the share of a GPU's memory that XLA may take; 0: its own, three quarters"},
		{Name: "cache", To: &d.Cache, Is: schema.Anything("that names a directory, or empty"), Default: "",
			Doc: "cuda only: a directory in which XLA keeps compiled kernels, and its choices of the fastest ones, for later runs; empty: none"},
		{Name: "timeout_minutes", To: &d.TimeoutMinutes, Is: schema.Between(0, 1e6), Default: 30.0,
			Doc: "cuda only: a GPU that has not answered for so long hangs: the run ends with an error that names the newest checkpoint, and goes on from there with --resume; 0: it is waited for without end. A step is one execution, whatever its size; compiling does not count"},
		{Name: "threads", To: &d.Threads, Is: schema.From(0, 4096), Default: 0,
			Doc: "CPU threads; 0: all cores"},
		{Name: "peak_tflops", To: &d.PeakTFLOPS, Is: schema.Between(0, 1e9), Default: 0.0,
			Doc: "what the device can do, all GPUs together, in 10¹² floating-point operations a second: records then hold the share that the model uses (mfu); 0: they do not"},
	}
}

func (c *Config) trainKeys() []schema.Key {
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
		{Name: "recompute", To: &t.Recompute, Is: schema.OneOf(architecture.RecomputeNone, architecture.RecomputeAttention, architecture.RecomputeBlocks, RecomputeAuto), For: architecture.Languages, Default: architecture.RecomputeNone,
			Doc: "what the backward pass computes again instead of keeping it from the forward pass; attention: queries, keys, values and, where attention has them in memory, the scores of each layer; blocks: all that is inside each transformer block (gradient checkpointing). Less memory and more time, for the same bits on the CPU; auto: the least of these, beginning with none, with which there is enough memory, on the CPU by an estimate, on a GPU by XLA, which compiles the step for each"},
		{Name: "memory_check", To: &t.MemoryCheck, Is: schema.OneOf("on", "off"), Default: "on",
			Doc: "on: before it begins, the run is refused when it needs more memory than there is, by an estimate, which `cage train --estimate` prints, or on a GPU by what XLA says of the compiled step; off: it is tried all the same"},
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
		{Name: "requantize", To: &t.Requantize, Is: schema.OneOf("on", "off"), For: architecture.Languages, Default: "on",
			Doc: "what [quantizer.backward] quantizes. on: what the forward product multiplied, Q(x) and Q(W), once more, so that a training keeps one copy of each; " +
				"off: x and W themselves, along the axes of the backward pass, as in NVIDIA's recipe for NVFP4"},
		{Name: "average", To: &t.Average, Is: schema.OneOf(averageOff, averageEMA, averageUniform),
			Default: averageOff,
			Doc: "what validation losses, train.samples, `cage eval`, exports, and everything else that " +
				"uses the run as a model take in place of the weights as the last step left them; " +
				"ema: their exponential moving average over the steps; uniform: their mean. Q is " +
				"applied to the average. Trained parameters of quantizers are averaged, too, but for " +
				"those that are constrained to a set; their other state is not. Training itself, its " +
				"losses, and the distance and trajectory of a problem are of the weights. Costs the " +
				"memory of one float32 copy of the weights, divided as the optimizer's " +
				"state, and a second one during evaluations. Not with an optimizer that brings an " +
				"average of its own (schedule-free)"},
		{Name: "average_decay", To: &t.AverageDecay, Is: schema.Below(0, 1),
			Default: defaultAverageDecay,
			Doc:     "ema: share of the average that a step keeps"},
		{Name: "average_from", To: &t.AverageFrom, Is: schema.Between(0, schema.Most),
			Derive:  func() any { return either(t.Average == averageUniform, 0.8, 0.0) },
			Derived: "`0`; uniform: `0.8`",
			Doc: "where the average begins: after this fraction of the steps when below 1, else at " +
				"this step. Before, it is the weights themselves"},
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

		{Name: "checkpoint_every", To: &t.CheckpointEvery, Is: schema.From(0, schema.Most), Default: 0,
			Doc: "steps between checkpoints; 0: none by steps. One is saved in any case when the run ends: at its last step, by a signal, or by an error after which the state is consistent"},
		{Name: "checkpoint_minutes", To: &t.CheckpointMinutes, Is: schema.Between(0, 1e6),
			Derive: func() any { return either(t.CheckpointEvery > 0, 0.0, 10.0) }, Derived: "`10`; with `checkpoint_every`: `0`",
			Doc: "minutes since the last checkpoint until the next; 0: none by the clock. So a run without any setting of checkpoints loses at most these " +
				"minutes when the machine stops. A default by the clock suits both runs of seconds, which write none, and runs of weeks; when states are saved changes no bit of the result"},
		{Name: "keep", To: &t.Keep, Is: schema.From(1, schema.Most), Default: 2,
			Doc: "checkpoints kept, the latest ones; the latest that is finite stays in any case"},
		{Name: "out", To: &t.Out, Is: schema.NonEmpty("that names a directory"),
			Derive: func() any {
				name := strings.TrimSuffix(filepath.Base(c.places.File()), filepath.Ext(c.places.File()))
				if name == "" || name == "." || name == string(filepath.Separator) {
					name = "run"
				}
				return filepath.Join("runs", name)
			}, Derived: "`runs/NAME`, NAME being the configuration file's without its ending",
			Doc: "run directory"},
		{Name: "nan_policy", To: &t.NaNPolicy, Is: schema.OneOf("skip", "stop"), Default: "skip",
			Doc: "what to do at a step whose loss or gradient is not finite: leave the parameters as they are and go on, or end the run"},
		{Name: "max_skipped", To: &t.MaxSkipped, Is: schema.From(0, schema.Most), Default: 10,
			Doc: "nan_policy skip: steps skipped in all before the run ends; 0: the first one ends it"},
		{Name: "tensorboard", To: &t.TensorBoard, Default: false,
			Doc: "true: the records are also written as event files, to tensorboard/ in the run directory, for TensorBoard and Weights & Biases"},

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

const (
	distillationTable = "train.distillation"
	teacherKey        = distillationTable + ".teacher"
)

func (d *Distillation) table() table {
	return table{name: distillationTable, models: architecture.Languages, sample: distillationSample, keys: d.keys(),
		doc: "The model learns what a teacher predicts, beside or in place of the tokens themselves. Its weights never change, no\n" +
			"checkpoint holds them, and it is computed without quantization, however it was trained. What is minimized is the\n" +
			"generalized Jensen-Shannon divergence of the two predictions, P the teacher's and Q the model's:\n" +
			"β·KL(P‖M) + (1−β)·KL(Q‖M) with M = βP + (1−β)Q. It counts for the same tokens as cross-entropy does, and is\n" +
			"normalized as that is. Validation losses are cross-entropies in any case.",
		absent: "there is no teacher"}
}

func (d *Distillation) keys() []schema.Key {
	return []schema.Key{
		{Name: "teacher", To: &d.Teacher, Is: schema.NonEmpty(`that is "initial" or names a directory`), Optional: "required in the table",
			Doc: "initial: the model as it starts, of `model.init`; or the directory of a Hugging Face checkpoint or of a run (its newest checkpoint is used), with the same vocabulary"},
		{Name: "beta", To: &d.Beta, Is: schema.Between(0, 1), Default: 0.5,
			Doc: "β; 0.5: the Jensen-Shannon divergence; 0: KL(P‖Q), 1: KL(Q‖P)"},
		{Name: "temperature", To: &d.Temperature, Is: schema.Above(0, 1000), Default: 1.0,
			Doc: "what the logits of both are divided by"},
		{Name: "weight", To: &d.Weight, Is: schema.Above(0, 1), Default: 1.0,
			Doc: "share of the divergence in the loss; the rest is cross-entropy"},
		{Name: "squared", To: &d.Squared, Default: false,
			Doc: "true: the divergence is multiplied with the square of the temperature, in the loss and in what is recorded, as in NVIDIA's code of QAD for Hugging Face models; that for Megatron does not"},
	}
}

const distillationSample = `[train.distillation]         # 4 bits learn what full precision predicts
teacher = "models/Llama-3.2-3B-Instruct"
beta = 0.5
`

const aboutParams = "Every other key is a parameter of the plugin (`cage plugins show NAME` lists them)."

// noPlugin as the name of a quantizer leaves the role unquantized.
const noPlugin = "none"

const defaultOptimizer = "adamw"

var tensorRoles = []string{string(sdk.TensorMatrix), string(sdk.TensorVector), string(sdk.TensorEmbedding), string(sdk.TensorHead)}

// pluginTables returns one sample of each table that configures a plugin, bound to a new plugin,
// override or group, because a configuration may have any number of them. The functions such as
// quantizerTable bind a table to a given plugin.
func (c *Config) pluginTables() []table {
	list := []table{quantizerTable(&Plugin{}), roleTable(RoleWeights, &Plugin{}), roleTable(RoleActivations, &Plugin{})}
	for _, role := range ownRoles {
		list = append(list, roleTable(role, &Plugin{}))
	}
	return append(list, overrideTable(&Override{}, &Plugin{}),
		c.Optimizer.table(&Plugin{}), c.Optimizer.restTable(&Plugin{}), groupTable(&Group{}, &Plugin{}))
}

func quantizerTable(p *Plugin) table {
	return table{name: "quantizer", plugin: p, example: `"quest"`, keys: quantizerKeys(p),
		doc:    "The quantizer of weights and activations. " + aboutParams,
		absent: "unquantized, unless the table of a role or an override says otherwise"}
}

func roleTable(role string, p *Plugin) table {
	t := table{name: "quantizer." + role, plugin: p, example: `"mxfp4"`, keys: quantizerKeys(p), models: architecture.Languages}
	switch role {
	case RoleKeys:
		t.example = `"kivi"`
		t.doc = "The quantizer of the keys of attention, as a cache holds them: after their normalization and rotation, before the product\n" +
			"with the queries. Rows have the heads of one token, one after the other. It is used in training, evaluation and generation.\n" +
			"Generation reads tokens one by one: a quantizer for which several tokens count together must refuse that."
		t.absent = "keys are not quantized"
	case RoleValues:
		t.example = `"kivi"`
		t.doc = "The quantizer of the values of attention, in the same way."
		t.absent = "values are not quantized"
	case RoleQueries:
		t.doc = "The quantizer of the queries of attention, rotated as keys are, before their factor 1/√size. The probabilities, which are\n" +
			"inside of fused attention and nowhere in memory, cannot be quantized."
		t.absent = "queries are not quantized"
	case RoleHead:
		t.doc = "The quantizer of the output head: of its weight, named head, or embedding where they are tied, and of its input, head.input.\n" +
			"A tied weight is one tensor: tokens are looked up in its quantized values, too. An override with role = \"head\" and\n" +
			"plugin = \"none\" leaves one of the two as it is. The products of the head's backward pass are not quantized."
		t.absent = "the head is not quantized"
	case RoleGradients:
		t.doc = "The quantizer of dy, the gradient of a linear layer's output, in the two products of its backward pass: dx = dy·W and\n" +
			"dW = dyᵀ·x. In each, it quantizes along the axis that the product sums over: rows of dy have the outputs of one token, and\n" +
			"rows of dyᵀ one output of all tokens of a micro-batch. It may have no trained parameters. Evaluations do not use it."
		t.absent = "gradients are not quantized"
	case RoleBackward:
		t.doc = "The quantizer of the other operands of these two products, Wᵀ and xᵀ, along the axes that they sum over. What it\n" +
			"quantizes is what the forward product multiplied: values that are quantized already, if weights and activations are,\n" +
			"and still rotated where train.rotations leaves them so; or x and W themselves, with train.requantize = \"off\". Where both tables name a plugin that rotates at random, both\n" +
			"operands of a product are rotated alike."
		t.absent = "the products of the backward pass have the operands of the forward product, as they are"
	default:
		t.example, t.models, t.absent = `"quest"`, nil, "as [quantizer]"
		t.doc = "The quantizer of " + role + ", instead of the one in [quantizer]."
	}
	return t
}

func overrideTable(o *Override, p *Plugin) table {
	return table{name: "quantizer.overrides", list: true, plugin: p, example: `"absmax"`, sample: overrideSample,
		doc: "Another quantizer, or none, for some weights and activations instead of those of the tables above.\n" +
			"At least one of match, layers, from and to must be given. The last override that matches wins. " + aboutParams,
		keys: append([]schema.Key{
			{Name: "match", To: &o.Match, Is: schema.Patterns(), Optional: "all",
				Doc: "names of parameters (weights) and of sites (activations); `*` stands for any run of characters"},
			{Name: "layers", To: &o.Layers, Is: schema.From(-4096, 4095), Optional: "all, and what is in none",
				Doc: "numbers of transformer blocks, of which what match names must be in one: 0 is the first block, -1 the last one, -2 the one before"},
			{Name: "role", To: &o.Role, Is: schema.OneOf(slices.Concat([]string{RoleWeights, RoleActivations, roleBoth}, ownRoles, []string{roleAll})...), Default: roleBoth,
				Doc: "what the override is about; both: weights and activations; keys, values, queries, head: as in the tables of these names; gradients: those of the outputs of layers, by the names of the weights; backward: weights and activations in the products of the backward pass; all: all of these"},
			{Name: "from", To: &o.From, Is: schema.From(1, schema.Most), Default: 1,
				Doc: "the first step with the override. Earlier versions changed the quantizers of a run; a training now has the same ones in all its steps, and only evaluations of such runs use from and to"},
			{Name: "to", To: &o.To, Is: schema.From(0, schema.Most), Default: 0,
				Doc: "the last step with the override; 0: the last one of the run. See from"},
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

[[quantizer.overrides]]      # the first and the last block in full precision
layers = [0, -1]
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
				Doc: "factor of the learning rate; 0 freezes the parameters: no update, no weight decay " +
					"and no correction changes them. Their gradients are still computed, and count in " +
					"the norm that train.clip bounds. What a quantizer trains is not frozen with its " +
					"weight, but by its own name: match = \"quantizer.*\""},
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

// anOptimizer is the range of an optimizer's name. "none" is invalid: training needs an optimizer.
var anOptimizer = schema.NonEmpty("that names a plugin", noPlugin)

// pluginKeys returns the two keys that every plugin table has besides the plugin's parameters. name
// describes the default of the key plugin.
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

// refreshDelay completes the key that delays refreshes.
func refreshDelay(k schema.Key) schema.Key {
	k.Name, k.Is = "refresh_delay", schema.From(0, 1_000_000)
	k.Doc = "number of updates after which new preconditioners (SOAP, Shampoo) take effect, except the first ones, which take effect at once. Meanwhile the host's " +
		"processors compute them while training goes on, so that a GPU need not wait. Less than the number of updates between refreshes; 0: training waits for refreshes"
	return k
}
