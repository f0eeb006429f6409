// Package method is the wing of the paper's method and of what else is a function of the step or of the weights alone. It
// holds no code of its own. Its rooms:
//
//	cage         Algorithm 1, its variants and measures, and LOTION
//	schedule     learning rates
//	diagnostics  what codes and residuals do during training
//
// The method comes in as settings and leaves as programs (package sdk/program), which package host/compute/update runs
// beside those of the optimizer. No quantizer, optimizer, model or device is known here.
package method
