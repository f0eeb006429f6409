// Package gguf reads and writes files in the GGUF format, version 3: the models that
// llama.cpp and the programs built on it load
// (https://github.com/ggml-org/ggml/blob/master/docs/gguf.md).
//
// A file holds entries, which are named values such as the number of layers or the list
// of tokens, and tensors, of plain floats or of blocks of 32 quantized numbers. A file
// that is written is complete or absent. The reader takes nothing on trust: every length
// and offset is compared with the size of the file before anything is allocated.
//
// Here, as everywhere in this module, tensors have their shape in row-major order, [rows,
// columns] for a matrix; the file stores it in reverse.
//
// Which entries and tensors a model consists of is not known here; see host/deploy/export.
// Blocks are only decoded here; whoever writes them encodes them, so that what is written
// can be checked with independent code.
package gguf
