// Package data brings text to the training loop.
//
// [Prepare] turns text files and folders into a dataset: a folder with a
// training and a validation file of token ids, the tokenizer they were made
// with, and a manifest. [OpenDataset] opens such a folder, [Sampler] draws
// training batches from a token file in an order that a seed fixes, and
// [Sequential] reads a validation file from front to back. How text becomes
// ids is the business of the package tokenizer below this one.
//
// Everything here is deterministic: the same files and settings give the same
// bytes on every machine, and a batch follows from its number alone.
//
// What may not live here: models, devices, losses. Batches leave as []int32.
package data
