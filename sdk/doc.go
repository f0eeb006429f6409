// Package sdk is the package that authors of plugins import: the interfaces
// Quantizer and Optimizer, the declaration of their parameters, and the functions
// that serve them to a host.
//
// A plugin is a separate executable whose main is one line:
//
//	func main() { sdk.ServeQuantizer(absmax{}) }
//
// A plugin never sees a tensor. A host is the program that trains, and a site is a tensor of the
// model that is quantized. The host calls a quantizer once for each site, and an optimizer once for
// each trained tensor. The plugin returns a program of tensor operations (package program), which
// becomes part of the training step.
//
// Some algorithms need more. Optional interfaces, which an author implements on the same type, are
// for quantizers: trained parameters ([Trainable]), state carried
// from step to step ([Stateful]), a custom backward pass ([Differentiator]), codes for export
// ([Packer]); for optimizers: some tensors only ([Selective]), factorizations every few updates
// ([Refresher]), state in fewer bits ([Compact]). Interfaces that few algorithms need are in
// package ext. The form of a plugin's answers, as hosts read them, is in package spec.
//
// Quantizers and optimizers know nothing of each other, of the model, or of the
// method that corrects the training; the host does weight decay, gradient clipping,
// learning rate schedules and the application of the update.
//
// Nothing here may import the host or a tensor engine.
package sdk
