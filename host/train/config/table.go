package config

import (
	"math"

	"github.com/cage-qat/cage/host/compute/device"
	"github.com/cage-qat/cage/host/model/architecture"
	"github.com/cage-qat/cage/internal/schema"
)

// tables lists every table, with its keys tied to c, in the order of [Reference] and
// [Config.Encode]. Those of the quantizers' and optimizers' plugins are tied to samples:
// see pluginTables.
func (c *Config) tables() []table {
	return append(append([]table{
		{keys: []schema.Key{
			{Name: "seed", To: &c.Seed, Is: schema.From(0, math.MaxInt64), Default: 0,
				Doc: "seed of the model's initialisation, and of the noise of a problem without data"},
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
				"correction; or LOTION, the baseline that trains in full precision on a loss smoothed by randomized rounding, and\n" +
				"quantizes for evaluation only. A key of another method than the named one is an error."},
	}, c.pluginTables()...),
		table{name: "diagnostics", keys: c.Diagnostics.Keys(),
			doc: "Samples of the codes and residuals of quantized weights, from which each line of metrics at a sample says how\n" +
				"often codes change, how long they stay and whether residuals add up: what the schedule of λ rests on. They\n" +
				"change nothing about the training."},
		table{name: "device", keys: c.Device.keys(), doc: "Where the run computes."})
}

func (d *Data) keys() []schema.Key {
	return []schema.Key{
		{Name: "kind", To: &d.Kind, Is: schema.OneOf(KindText, KindChat), Default: KindText, Common: true,
			Doc: "text: token files; chat: conversations, which `cage data prepare --kind chat` makes, of which the assistant's turns are learned"},
		{Name: "train", To: &d.Train, Is: schema.Paths("that name token files"), Optional: "required, unless there is a mixture",
			Doc: "token file to train on; several, or a pattern such as `data/web/train-*.tokens`, are read one after another"},
		{Name: "validation", To: &d.Validation, Is: schema.NonEmpty("that names a token file"),
			Doc: "token file to evaluate on"},
		{Name: "tokenizer", To: &d.Tokenizer, Is: schema.Anything("that names a tokenizer.json, or empty"), Default: "",
			Doc: "path of a tokenizer.json; empty: as recorded in the token file"},
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
			{Name: "path", To: &s.Path, Is: schema.NonEmpty("that names a token file"), Common: true,
				Doc: "token file, or a pattern for several that are read as one"},
			{Name: "weight", To: &s.Weight, Is: schema.Above(0, 1e6), Common: true,
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
			Doc: "GPUs that share each micro-batch in equal parts and keep equal parameters; cuda only"},
		{Name: "precision", To: &d.Precision, Is: schema.OneOf(device.Float32, device.BFloat16), Default: device.Float32,
			Doc: "type of the model's matrix products, which add up in float32; bfloat16 with cuda only. Parameters, optimizer states, quantizers and losses stay float32"},
		{Name: "tf32", To: &d.TF32, Is: schema.OneOf("off", "on"), Default: "off",
			Doc: "cuda only: products that are float32, those of quantizers and optimizers among them, round their operands to 10 bits of mantissa. Faster; off is exact"},
		{Name: "attention", To: &d.Attention, Is: schema.OneOf(device.AutoAttention, device.FusedAttention, device.PlainAttention), Default: device.AutoAttention,
			Doc: "bfloat16 only: how attention is computed; fused: as one operation of the device, cuDNN's, which keeps no weights; plain: as products and a softmax; auto: fused where a short trial agrees with plain"},
		{Name: "kernels", To: &d.Kernels, Is: schema.OneOf(device.AutoKernels, device.FusedKernels, device.GraphKernels), Default: device.AutoKernels,
			Doc: "bfloat16 only: how the programs of quantizers are computed; fused: each that computes rows as one kernel for each pass, with activations and their gradients in bfloat16; graph: as operations, in float32; auto: fused where a short trial agrees with graph"},
		{Name: "products", To: &d.Products, Is: schema.OneOf(device.FloatProducts, device.IntegerProducts, device.BlockProducts), Default: device.FloatProducts,
			Doc: "cuda only: how quantized activations and weights are multiplied in the forward pass; integer: by their codes, in 8 bits with exact sums in 32, where both have one scale for each row; fp4: by their codes, where both are floats of four bits with scales for their blocks (MXFP4, NVFP4), on NVIDIA's Blackwell in data centers; where device.kernels is auto, if a short trial agrees with float; float: by their values, in device.precision"},
		{Name: "allocator", To: &d.Allocator, Is: schema.OneOf(device.Allocators()...), Default: device.DefaultAllocator,
			Doc: "cuda only: how XLA takes memory of the GPU; bfc: in large pieces that it divides; cuda_async: by CUDA's own pool; platform: piece by piece, which is slow; default: its choice"},
		{Name: "preallocate", To: &d.Preallocate, Is: schema.OneOf("off", "on"), Default: "off",
			Doc: "cuda only: takes device.memory_fraction of the memory at once, so that it does not become fragmented; off: as it is needed"},
		{Name: "memory_fraction", To: &d.MemoryFraction, Is: schema.Between(0, 1), Default: 0.0,
			Doc: "cuda only: the share of a GPU's memory that XLA may take; 0: its own, three quarters"},
		{Name: "cache", To: &d.Cache, Is: schema.Anything("that names a directory, or empty"), Default: "",
			Doc: "cuda only: a directory in which XLA keeps compiled kernels, and its choices of the fastest ones, for later runs; empty: none"},
		{Name: "threads", To: &d.Threads, Is: schema.From(0, 4096), Default: 0,
			Doc: "CPU threads; 0: all cores"},
		{Name: "peak_tflops", To: &d.PeakTFLOPS, Is: schema.Between(0, 1e9), Default: 0.0,
			Doc: "what the device can do, all GPUs together, in 10¹² floating-point operations a second: records then hold the share that the model uses (mfu); 0: they do not"},
	}
}
