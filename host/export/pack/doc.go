// Package pack turns the codes and scales of quantized weights into the bytes of the
// formats in which other programs store them: words of integers and bytes of E2M1 for
// compressed-tensors, blocks of 32 for GGUF, half floats, bfloat16, E4M3 and powers of two
// for scales.
//
// Scales are converted exactly or not at all. The decoders stand elsewhere
// (host/export/readback, host/gguf) and share nothing with this package, so that comparing
// what they give with what was packed proves something.
package pack
