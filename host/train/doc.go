// Package train is the training loop: it draws batches, asks the schedules for
// α_t and λ_t, runs the compiled step, evaluates, records, and saves and resumes
// checkpoints. A run lives in a directory that holds everything about it:
//
//	run.toml            the resolved configuration, with the hashes of plugins and data
//	provenance.json     the run's identity, the build, the plugins' parameters, the hashes of their programs
//	metrics.jsonl       one record per logged step
//	trajectory.jsonl    the points that a problem without data went through
//	samples.jsonl       texts that a language model wrote while it was trained
//	checkpoints/        the last states
//	summary.json        what came out
//
// The mathematics is elsewhere: the step in host/step, the method in host/cage, the
// model in host/model. What happens here is order and bookkeeping.
package train
