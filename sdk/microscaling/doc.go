// Package microscaling helps to write quantizers to four-bit floats with a scale per
// block: MXFP4, of the OCP Microscaling specification, and NVFP4. It writes operations
// into the program of a plugin: blocks along the rows of a tensor, rounding to E2M1 and to
// E4M3, and the codes of E2M1. [ScaleType], which rounds scales to 16-bit floats, is for
// every quantizer.
//
// The quantizer chooses the scales. Nothing here computes on tensors.
package microscaling
