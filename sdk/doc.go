// Package sdk is what the author of a plugin imports: the interfaces Quantizer
// and Optimizer, the declaration of their parameters, and the functions that
// serve them to a host.
//
// A plugin is a program of its own whose main is one line:
//
//	func main() { sdk.ServeQuantizer(absmax{}) }
//
// A plugin never sees a tensor. A host is the program that trains, and a site is a
// place in the model where a tensor is quantized. The host asks a quantizer once for
// each site, and an optimizer once for each trained tensor. The plugin answers with a
// program of tensor operations (package program), which becomes part of the training step.
//
// Some algorithms need more. For them there are further interfaces, which an author
// implements on the same type: [Trainable] and [Packer] for quantizers, [Refresher]
// and [Selective] for optimizers.
//
// An algorithm that is no program can still be an optimizer: [OpaqueOptimizer] computes in its own
// process.
//
// Quantizers and optimizers know nothing of each other, of the model, or of the
// method that corrects the training; weight decay, gradient clipping, schedules
// and the application of the update are the host's.
//
// Nothing here may import the host or a tensor engine.
package sdk
