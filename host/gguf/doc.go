// Package gguf reads and writes files of the GGUF format, version 3: the models that
// llama.cpp and the programs built on it load
// (https://github.com/ggml-org/ggml/blob/master/docs/gguf.md).
//
// A file holds entries, which are named values such as the number of layers or the list
// of tokens, and tensors, of plain floats or of blocks of 32 quantized numbers. A file
// that is written is complete or absent. The reader takes nothing on trust: every length
// and offset is compared with the size of the file before anything is allocated.
//
// Tensors have their shape in row-major order here, [rows, columns] for a matrix, as
// everywhere in this module; the file has it the other way round.
//
// Which entries and tensors a model consists of is not known here; see host/export. Blocks
// are only decoded here; who writes them encodes them, so that what is written can be
// compared with code of another hand.
package gguf
