// Package train is the training loop: it draws batches, asks the schedules for α_t and
// λ_t, runs the compiled step, evaluates, records, and saves and resumes checkpoints. A
// run lives in a directory that holds everything about it:
//
//	run.toml            the resolved configuration, with the hashes of plugins and data
//	provenance.json     the run's identity, the build, the plugins' parameters, the hashes of their programs
//	metrics.jsonl       one record per logged step
//	trajectory.jsonl    the points visited by a problem without data
//	samples.jsonl       texts that a language model wrote during training
//	checkpoints/        the most recent states
//	summary.json        the results
//
// The mathematics lives elsewhere: the step in host/train/step, the method in host/method/cage, the
// model in host/model. This package is concerned with order and bookkeeping only.
//
// The rooms of the wing, the highest first:
//
//	records      records of several runs as a table or event files
//	conformance  sdktest's checks of a plugin, on processes and devices
//	provenance   what a run and its weights come from
//	assembly     from a configuration to parts: data, programs of plugins, a compiled step
//	step         one step as a compiled graph, with its state; evaluation and decoding of a model
//	memory       what a training needs of it, from sizes alone
//	plugin       plugins as processes
//	checkpoint   named tensors in files
//	rundir       the files of a run, lists of runs
//	config       run.toml
//	tensorboard, console, metrics  records, and who shows them
//
// A configuration becomes parts (config, plugin, assembly), the loop draws batches from them and runs the step, and what the
// step returns leaves as records and checkpoints in the run directory.
package train
