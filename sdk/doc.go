// Package sdk is what the author of a plugin imports: the interfaces Quantizer
// and Optimizer, the declaration of their parameters, and the functions that
// serve them to a host.
//
// A plugin is a program of its own whose main is one line:
//
//	func main() { sdk.ServeQuantizer(absmax{}) }
//
// It never sees a tensor. For each site of the model the host asks once for a
// program (package program), inlines it into the training step and asks no more.
// What only some algorithms need is an interface of its own, which the author adds
// to the same type: [Trainable] and [Packer] to a quantizer, [Refresher] and
// [Selective] to an optimizer.
//
// Quantizers and optimizers know nothing of each other, of the model, or of the
// method that corrects the training; weight decay, gradient clipping, schedules
// and the application of the update are the host's.
//
// Nothing here may import the host or a tensor engine.
package sdk
