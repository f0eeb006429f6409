// Package export writes trained models in the formats of other programs: directories of
// Hugging Face, the compressed-tensors form of these for vLLM and transformers, and GGUF
// for llama.cpp.
//
// What is exported of a quantized weight x is the Q(x) that training used, bit for bit; −0
// counts as 0, which integers do not tell apart. A weight is taken as the codes and scales
// that its quantizer's program returns ([Grid]), which a format stores if it can. What was
// written is read back by other code (host/export/readback) and compared. A weight that a
// format cannot hold exactly is refused with the reason, unless [Options.Inexact] is set:
// then the report says how large the difference is.
//
// A format is a [Format], written in one file. An export is complete or absent.
package export
