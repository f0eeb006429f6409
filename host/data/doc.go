// Package data brings text to the training loop.
//
// [Prepare] turns texts into a dataset: a folder with training and validation
// files of token ids, the tokenizer they were made
// with, and a manifest that [Verify] compares it with. [Sampler] draws
// training batches from a token file in an order that a seed fixes, and
// [Sequential] reads a validation file from front to back. How files are read
// is in package source, how text becomes ids in package tokenizer.
//
// Everything here is deterministic: the same files and settings give the same
// bytes on every machine, and a batch depends on nothing but its number. Batches
// are []int32: nothing here knows models or devices.
package data
