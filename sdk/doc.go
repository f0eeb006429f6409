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
// Some algorithms need more. For each need there is a further interface, which an author
// implements on the same type. For quantizers: parameters that are trained ([Trainable]), state
// from step to step ([Stateful]), a backward pass of its own ([Differentiator]), codes for export
// ([Packer]). For optimizers: some tensors only ([Selective]), factorizations every few updates
// ([Refresher]), state in fewer bits ([Compact]). What few algorithms need is in package ext.
//
// What hosts read of a plugin's answers is in package spec.
//
// Quantizers and optimizers know nothing of each other, of the model, or of the
// method that corrects the training; weight decay, gradient clipping, schedules
// and the application of the update are the host's.
//
// Nothing here may import the host or a tensor engine.
package sdk
