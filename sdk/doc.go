// Package sdk is the package that authors of plugins import: the interfaces Quantizer and
// Optimizer, the declaration of their parameters, and the functions that serve them to a host.
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
// Some algorithms need more. An author can implement optional interfaces on the same type. A
// quantizer can have trained parameters ([Trainable]), state carried from step to step
// ([Stateful]), a custom backward pass ([Differentiator]) and codes for export ([Packer]). An
// optimizer can accept only some tensors ([Selective]), factorize every few updates ([Refresher])
// and store its state in fewer bits ([Compact]). Few quantizers need a [Sharer], [Constrained],
// [Maximal] or [Searcher], and few optimizers a [Pacer], [Collector], [Prober], [Sampler],
// [Averaged] or [Rounded]. The form of a plugin's answers, as hosts read them, is in package spec.
//
// Quantizers and optimizers know nothing of each other, of the model, or of the method that
// corrects the training. The host performs weight decay, gradient clipping and learning rate
// schedules, and applies the update.
//
// Nothing here may import the host or a tensor engine.
package sdk
