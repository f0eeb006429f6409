// Package export writes trained models in the formats of other programs: Hugging Face
// directories, also in the compressed-tensors layout for vLLM and transformers, and GGUF
// for llama.cpp.
//
// For a quantized weight x, the Q(x) that training used is exported, bit for bit, except
// that −0 counts as 0, since integers have no −0. A weight is taken as the codes and
// scales that its quantizer's program returns ([Grid]), and stored in that form if the
// format can. What was written is read back by separate code (host/deploy/export/readback) and
// compared. A weight that a format cannot hold exactly is refused with the reason, unless
// [Options.Inexact] is set; then the report says how large the difference is.
//
// Each format is a [Format], implemented in a file of its own. An export is complete or
// absent.
package export
