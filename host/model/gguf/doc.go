// Package gguf writes files in the GGUF format, version 3, and reads versions 2 and 3: the models
// that llama.cpp and the programs built on it load
// (https://github.com/ggml-org/ggml/blob/master/docs/gguf.md).
//
// A file holds entries, which are named values such as the number of layers or the list of tokens,
// and tensors, of plain floats or of blocks of 32 quantized numbers. A written file is complete or
// absent. The header of a file that is read is checked as a whole when it is opened.
//
// As everywhere in this module, shapes of tensors are in row-major order, [rows, columns] for a
// matrix; the file stores them reversed.
//
// The entries and tensors of a model are defined by host/deploy/export. Blocks are only decoded
// here; their writers encode them, so that files can be verified with independent code.
package gguf
