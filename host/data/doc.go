// Package data turns text into token files and token files into batches for the training
// loop.
//
// [Prepare] turns texts into a dataset: a folder with training and validation files of
// token ids, the tokenizer that made them, and a manifest against which [Verify] checks
// the files. Package dataset reads and writes token files, package arrange draws batches from
// them, package source reads the input files, and package tokenizer turns text into ids.
//
// Everything here is deterministic: the same files and settings give the same bytes on
// every machine, and a batch depends on nothing but its number. Batches are []int32:
// nothing here knows models or devices.
//
// The rooms of the wing: source reads texts, tokenizer makes ids of them, and chat makes
// documents of conversations, with what is learned of each.
package data
