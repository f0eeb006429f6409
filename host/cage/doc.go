// Package cage implements the weight updates of quantization-aware training: CAGE, the methods that
// it is compared with, learning-rate schedules and diagnostics of weights. A [Rule] describes
// the update of one tensor and writes it as programs (package sdk/program), which package
// host/compute/stage runs; a [Method] adds to it. Nothing here depends on a particular quantizer,
// optimizer, model or device.
//
//	algorithm.go   the step of one tensor: the paper's Algorithm 1
//	cage.go        the correction, in both forms, and its schedule λ_t
//	rule.go        the description of the update of one tensor: its inputs, outputs and state
//	writer.go      the parts of an update's programs: weight decay, the optimizer, the measures
//	jobs.go        the programs bound to tensors by name
//	average.go     the running mean that evaluation uses
//	method.go      the interface of a method
//	settings.go    the [method] table of a configuration
//
// Each method other than CAGE has a file with its settings, formulas and sources:
//
//	lotion.go      LOTION, a regularizer that smooths the loss
//	oscireset.go   OsciReset, which resets oscillating weights to grid points
//	parq.go        PARQ and BinaryRelax, which quantize gradually
//	winq.go        WinQ, which mixes x and Q(x) in some steps, with noise
//	weight.go, levels.go   the values of a quantizer's codes, for PARQ and BinaryRelax
//
// Other parts of training:
//
//	schedule.go    learning rates
//	diagnostics.go, visits.go   changes of codes and residuals during training
package cage
