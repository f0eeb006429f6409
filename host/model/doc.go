// Package model holds the models that are trained: what their parameters are, how they start, and how a loss is computed
// from them. The functions that compute build GoMLX graphs and, by its convention, panic on a mistake; the engine turns
// that into errors.
//
// Weights are quantized outside: the caller quantizes each weight once per optimizer step and passes the result.
// Activations are quantized inside the model, at the places that [Model.ActivationSites] lists, by a function of the
// caller's.
//
// What a GPU computes better by a kernel than its compiler does from a graph, such as the sums in a softmax, is a program
// of package sdk/program that package lower makes one of; everywhere else it is a graph.
//
// # Layouts
//
// A linear layer has a weight of shape [out, in]; activations are [tokens, features], where tokens are the positions of
// all sequences of the batch, sequence by sequence. Gradients of products are written by hand: on the CPU the obvious
// gradient of x·Wᵀ spends more time in transposing its operands than in multiplying them.
package model
