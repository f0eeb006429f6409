// Package decode computes the next token of sequences in the processor's own memory, without a graph. One token of a few
// sequences takes little arithmetic, but all weights: here each is read once, by all processors, in the order in which it
// lies in memory, and nothing else of that size is read or written.
//
// [model.Language.Decode] is the definition. It reads prompts, and everything on other devices; both keep what attention
// needs in the same caches, and tests hold the two to each other.
package decode
