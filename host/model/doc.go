// Package model holds the trainable models: their parameters and initialization, and the
// computation of losses from them. A model is a program, which package network writes.
// [Model.Program] returns it for a stage of a step, and [Model.Calls] how executors compute its
// calls: on the CPU by kernels (package kernels), on accelerators by rules for graphs (package
// graphs).
//
// Weights are quantized outside this package: the caller quantizes each weight once per optimizer
// step and passes the result. Activations are quantized in the program, by calls at the sites that
// [Model.ActivationSites] lists.
//
// # Layouts
//
// A linear layer has a weight of shape [out, in]; activations are [tokens, features], where tokens
// are the positions of all sequences of the batch, sequence by sequence.
//
// # Packages in this directory
//
// architecture has settings and parameters; network writes programs, whose calls kernels computes
// on the CPU, and graphs on accelerators; lora has adapters; generate samples; score batches
// sequences; huggingface, gguf and safetensors read and write files of other programs. A model
// begins as settings (architecture) or as such files and becomes a program here, which returns
// losses to a training step, and logits to generate and score.
package model
