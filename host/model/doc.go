// Package model holds the trainable models: their parameters and initialization, and the
// computation of losses from them. The CPU computes a language model by a plan of its program,
// which package network writes ([Language.Planned]); for GPUs the other functions build GoMLX
// graphs. By the convention of GoMLX they panic on a mistake; the engine converts the panics to
// errors.
//
// Weights are quantized outside this package: the caller quantizes each weight once per optimizer
// step and passes the result. Activations are quantized inside the model, at the sites that
// [Model.ActivationSites] lists, by a function that the caller provides.
//
// Where a GPU is faster with a custom kernel than with the compiled graph, as for the sums in a
// softmax, the computation is a program of package sdk/program, which package lower compiles to a
// kernel. Everywhere else it is a graph.
//
// # Layouts
//
// A linear layer has a weight of shape [out, in]; activations are [tokens, features], where tokens
// are the positions of all sequences of the batch, sequence by sequence.
//
// # Packages in this directory
//
// architecture has settings and parameters, without graphs; network writes programs, and kernels
// computes their calls on the CPU; generate samples; score batches sequences; huggingface, gguf and
// safetensors read and write files of other programs. A model begins as settings (architecture) or
// as such files and becomes a program or a graph here, which returns losses to a training step, and
// logits to generate and score.
package model
