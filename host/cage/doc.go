// Package cage is about what a training does because its weights are quantized, beside quantizing them. A [Rule] describes the
// update of one tensor and writes it as programs (package sdk/program), which package host/compute/update runs; a [Method] adds to
// it. Nothing here knows a particular quantizer, optimizer, model or device, and nothing here may import one; who runs rules knows
// no method by its name.
//
//	algorithm.go   the step of a rule, beside the paper's Algorithm 1
//	rule.go        the description of the update of one tensor: its inputs, outputs and state
//	step.go        the parts of its programs: weight decay, the optimizer, the measures
//	method.go      what a method may read and change; weight.go: what it can find out about a quantizer
//	settings.go    the table [method] of a configuration
//
// Each method is a file with its settings, formulas and sources:
//
//	cage.go        curvature-aware gradient estimation, the method of this project
//	lotion.go      LOTION, a regularizer that smooths the loss
//	oscireset.go   OsciReset, which sets weights that oscillate back to their grid
//	parq.go        PARQ and BinaryRelax, with which quantization hardens gradually
//
// Two rooms hold what else is a function of the step or of the weights alone:
//
//	schedule       learning rates
//	diagnostics    what codes and residuals do during training
package cage
