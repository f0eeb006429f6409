// Package data turns text into token files and token files into batches for the training
// loop.
//
// [Prepare] turns texts into a dataset: a folder with training and validation files of
// token ids, the tokenizer that made them, and a manifest against which [Verify] checks
// the files. [Sampler] draws training batches from a token file in an order that a seed
// fixes, and [Sequential] reads a validation file from front to back. Package source
// reads the input files, and package tokenizer turns text into ids.
//
// Everything here is deterministic: the same files and settings give the same bytes on
// every machine, and a batch depends on nothing but its number. Batches are []int32:
// nothing here knows models or devices.
//
// The rooms of the wing: source reads texts, tokenizer makes ids of them, and chat makes
// documents of conversations, with what is learned of each.
package data
