// Package microscaling helps to write quantizers whose numbers are floats of four
// bits in blocks that share a scale: the formats of the OCP Microscaling
// specification (MXFP4) and NVFP4. It writes operations into the program of a plugin:
// blocks along the rows of a tensor, rounding to E2M1 and to E4M3, and the codes of
// E2M1. [ScaleType], which rounds scales to 16-bit floats, is for every quantizer.
//
// How a scale is chosen is up to the quantizer. Nothing here computes on tensors.
package microscaling
