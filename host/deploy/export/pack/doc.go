// Package pack turns the codes and scales of quantized weights into the bytes in which
// other programs store them: words of integers and bytes of E2M1 for compressed-tensors,
// and blocks of 32 for GGUF. Scales become half floats, bfloat16, E4M3 or powers of two.
//
// Scales are converted exactly or not at all. The decoders live elsewhere
// (host/deploy/export/readback, host/model/gguf) and share no code with this package, so that
// comparing what they return with what was packed proves something.
package pack
