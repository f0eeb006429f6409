// Package model holds the models that are trained: their parameters, how these are initialized, and
// how a loss is computed from them. The functions that compute build GoMLX graphs and, by its
// convention, panic on a mistake; the engine turns the panics into errors.
//
// Weights are quantized outside this package: the caller quantizes each weight once per optimizer
// step and passes the result. Activations are quantized inside the model, at the sites that
// [Model.ActivationSites] lists, by a function that the caller provides.
//
// Where a GPU is faster with a kernel than with what its compiler makes of a graph, as for the sums
// in a softmax, the computation is a program of package sdk/program, and package lower turns it
// into a kernel. Everywhere else it is a graph.
//
// # Layouts
//
// A linear layer has a weight of shape [out, in]; activations are [tokens, features], where tokens
// are the positions of all sequences of the batch, sequence by sequence. Gradients of products are
// written by hand: on the CPU the obvious gradient of x·Wᵀ spends more time on transposing its
// operands than on multiplying them.
//
// # Packages of the layer
//
// architecture has settings and parameters, without graphs; decode computes one token after the
// other in the host's memory; generate samples; score puts sequences into batches; huggingface,
// gguf and safetensors read and write files of other programs. A model begins as settings
// (architecture) or as such files and becomes a graph here, which gives losses to a training step,
// and logits to generate and score.
package model
