// Package decode computes the next token of sequences on the processor, without a graph. For one token of a few
// sequences there is little arithmetic, but all weights must be read. Here all processors read each weight once, in the
// order in which it lies in memory, and nothing else of that size is read or written.
//
// [model.Language.Decode] is the definition of what is computed. It is used for reading prompts, and for everything on
// other devices. Both keep what attention needs in the same caches, and tests compare the two.
package decode
